"""Specs of kernels that were recorded, inferred from their launches and their compiled code."""
