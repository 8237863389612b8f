"""Stored trials with their evidence, and the results made from them."""
