"""Worker processes, and locks on cores and devices."""
