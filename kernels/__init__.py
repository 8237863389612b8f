"""Kernels: the contract of a kernel spec, the kernels of the project, and their lookup by name or file."""
