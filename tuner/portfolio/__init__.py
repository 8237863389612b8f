"""Build and use portfolios: a few configs that serve all shapes of a kernel."""
