"""Triton's autotune cache, and Python modules of `triton.Config`."""
