"""Look up stored results: sources, relaxation from exact to predicted, nearest shapes."""
