"""The Triton functions, one file a family; the only part of `kernels` that imports triton."""
