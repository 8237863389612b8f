"""The Triton functions, one file per family; the only part of `kernels` that imports triton."""
