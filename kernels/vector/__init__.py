"""Specs of vector kernels, one family a module."""
