"""tilewise's own file formats."""
