"""Kernels of a user's program, recorded as it launches them."""
