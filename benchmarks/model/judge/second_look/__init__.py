"""Published timings listed without a look at the modelled clock: other sources, parts and kinds of kernels."""
