"""Triton functions of the attention kernels."""
