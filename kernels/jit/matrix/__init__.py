"""Triton functions of the matrix products that are built on those of `gemm`."""
