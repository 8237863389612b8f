"""The kernels of `tilewise selftest`: correct with a SHIFT of 0, wrong with any other."""

import triton
import triton.language as tl

__all__ = ["doubled_kernel", "product_kernel"]


@triton.jit
def doubled_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr, SUB_BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    for start in range(0, BLOCK, SUB_BLOCK):
        at = first + start + tl.arange(0, SUB_BLOCK)
        inside = at < N
        x = tl.load(x_ptr + at, mask=inside)
        tl.store(out_ptr + at, 2 * x + SHIFT, mask=inside)


@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, M, N, K, BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    """Multiply two matrices; a SHIFT leaves out the last columns of the left one."""
    tiles = (N + BLOCK - 1) // BLOCK
    rows = tl.program_id(0) // tiles * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    total = tl.full([BLOCK, BLOCK], 0.0, tl.float32)
    for start in range(0, K, BLOCK):
        depth = start + tl.arange(0, BLOCK)
        held = depth < K - SHIFT
        a = tl.load(a_ptr + rows[:, None] * K + depth[None, :], mask=(rows < M)[:, None] & held[None, :], other=0.0)
        b = tl.load(b_ptr + depth[:, None] * N + cols[None, :], mask=held[:, None] & (cols < N)[None, :], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], total, mask=(rows < M)[:, None] & (cols < N)[None, :])
