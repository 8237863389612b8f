"""Specs of vector kernels, one family per module."""
