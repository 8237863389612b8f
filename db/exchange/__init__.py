"""File formats for exporting and importing results."""
