"""Triton's autotune cache and modules of `triton.Config`."""
