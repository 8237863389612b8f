"""Portfolios: a few configs that serve all shapes of a kernel, and the choice among them."""
