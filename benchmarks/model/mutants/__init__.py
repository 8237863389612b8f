"""Mistakes put into the source of the project's kernels, and whether verification refuses them."""
