"""Run queued tuning jobs, each in a process of its own."""
