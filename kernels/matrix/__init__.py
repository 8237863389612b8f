"""Specs of kernels whose work is matrix products, one family per module."""
