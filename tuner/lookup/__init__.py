"""Look-ups of stored results: sources, relaxation from exact to predicted, nearest shapes."""
