"""The kernel of `tilewise selftest`: correct with a SHIFT of 0, wrong with any other."""

import triton
import triton.language as tl

__all__ = ["doubled_kernel"]


@triton.jit
def doubled_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr, SUB_BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    for start in range(0, BLOCK, SUB_BLOCK):
        at = first + start + tl.arange(0, SUB_BLOCK)
        inside = at < N
        x = tl.load(x_ptr + at, mask=inside)
        tl.store(out_ptr + at, 2 * x + SHIFT, mask=inside)
