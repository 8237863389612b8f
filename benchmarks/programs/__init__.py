"""Other people's kernels: captured, inferred and tuned without a line written for them."""
