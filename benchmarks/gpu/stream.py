"""A kernel that reads memory and does as little else as possible: the yardstick for kernels that read."""

import triton
import triton.language as tl

__all__ = ["stream_kernel"]


@triton.jit
def stream_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, TRIPS: tl.constexpr):
    """Sum BLOCK * TRIPS contiguous float32 elements per program into `out[program]`."""
    first = tl.program_id(0).to(tl.int64) * BLOCK * TRIPS
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for trip in range(TRIPS):
        at = first + trip * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, axis=0))
