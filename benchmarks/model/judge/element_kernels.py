"""Element-wise kernels of published timings, written from their descriptions, for comparison with the model only."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.ascend import libdevice

__all__ = [
    "add_kernel",
    "divide_rows_kernel",
    "gelu_kernel",
    "gelu_rows_kernel",
    "relu_rows_kernel",
    "scale_kernel",
    "scale_rows_kernel",
    "sigmoid_kernel",
    "silu_rows_kernel",
    "softsign_kernel",
    "tanh_kernel",
    "touch_kernel",
]


@triton.jit
def sigmoid_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr, NUM_CORES: tl.constexpr):
    """Take every NUM_CORES-th block."""
    for first in range(tl.program_id(0) * BLOCK_SIZE, n, NUM_CORES * BLOCK_SIZE):
        at = first + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        tl.store(out_ptr + at, 1.0 / (1.0 + tl.exp(-x)), mask=at < n)


@triton.jit
def scale_kernel(x_ptr, out_ptr, s, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0) * s, mask=at < n)


@triton.jit
def tanh_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(out_ptr + at, libdevice.tanh(tl.load(x_ptr + at, mask=at < n, other=0.0)), mask=at < n)


@triton.jit
def softsign_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, x / (1.0 + tl.abs(x)), mask=at < n)


@triton.jit
def _gelu(x):
    return 0.5 * x * (1.0 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(out_ptr + at, _gelu(tl.load(x_ptr + at, mask=at < n, other=0.0)), mask=at < n)


@triton.jit
def gelu_rows_kernel(x_ptr, out_ptr, M, N: tl.constexpr, BLOCK_SIZE_M: tl.constexpr):
    """Whole rows without a mask; the programs take turns."""
    cols = tl.arange(0, N)
    for block in range(tl.program_id(0), tl.cdiv(M, BLOCK_SIZE_M), tl.num_programs(0)):
        at = (block * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M))[:, None] * N + cols[None, :]
        tl.store(out_ptr + at, _gelu(tl.load(x_ptr + at)))


@triton.jit
def silu_rows_kernel(x_ptr, out_ptr, M, N: tl.constexpr, BLOCK_SIZE_M: tl.constexpr):
    """Whole rows without a mask; the programs take turns."""
    cols = tl.arange(0, N)
    for block in range(tl.program_id(0), tl.cdiv(M, BLOCK_SIZE_M), tl.num_programs(0)):
        at = (block * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M))[:, None] * N + cols[None, :]
        x = tl.load(x_ptr + at)
        tl.store(out_ptr + at, x * tl.sigmoid(x))


@triton.jit
def relu_rows_kernel(
    x_ptr, out_ptr, B: tl.constexpr, N: tl.constexpr, BLOCK_SIZE: tl.constexpr, NUM_CORES: tl.constexpr
):
    """Take every NUM_CORES-th row, in blocks of columns."""
    for row in range(tl.program_id(0), B, NUM_CORES):
        for left in range(0, N, BLOCK_SIZE):
            cols = tl.arange(0, BLOCK_SIZE)
            mask = cols < tl.minimum(BLOCK_SIZE, N - left)
            at = row * N + left + cols
            x = tl.load(x_ptr + at, mask=mask, other=0.0)
            tl.store(out_ptr + at, tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=mask)


@triton.jit
def divide_rows_kernel(
    x_ptr, d_ptr, out_ptr, B, HW, NUM_CORES: tl.constexpr, SUB_B: tl.constexpr, SUB_HW: tl.constexpr
):
    """Divide rows by one row, both in steps, in a fixed number of programs."""
    each = tl.cdiv(B, NUM_CORES)
    first = tl.program_id(0) * each
    end = tl.minimum(first + each, B)
    for top in range(first, end, SUB_B):
        rows = top + tl.arange(0, SUB_B)
        for left in range(0, HW, SUB_HW):
            cols = left + tl.arange(0, SUB_HW)
            d = tl.load(d_ptr + cols, mask=cols < HW, other=1.0)
            at = rows[:, None] * HW + cols[None, :]
            mask = (rows < end)[:, None] & (cols < HW)[None, :]
            tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask, other=0.0) / d[None, :], mask=mask)


@triton.jit
def scale_rows_kernel(
    d_ptr,
    x_ptr,
    out_ptr,
    N: tl.constexpr,
    M: tl.constexpr,
    NUM_CORES: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
):
    """Multiply each row by its own factor: columns outside, the program's rows inside."""
    each = tl.cdiv(N, NUM_CORES)
    first = tl.program_id(0) * each
    end = tl.minimum(first + each, N)
    for left in range(0, M, BLOCK_SIZE_M):
        right = tl.minimum(left + BLOCK_SIZE_M, M)
        for top in range(first, end, BLOCK_SIZE_N):
            rows, cols = top + tl.arange(0, BLOCK_SIZE_N), left + tl.arange(0, BLOCK_SIZE_M)
            bottom = tl.minimum(top + BLOCK_SIZE_N, end)
            d = tl.load(d_ptr + rows, mask=rows < bottom, other=0.0)
            at = rows[:, None] * M + cols[None, :]
            mask = (rows < bottom)[:, None] & (cols < right)[None, :]
            x = tl.load(x_ptr + at, mask=mask, other=0.0)
            tl.store(out_ptr + at, tl.broadcast_to(d[:, None], (BLOCK_SIZE_N, BLOCK_SIZE_M)) * x, mask=mask)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, CORES: tl.constexpr, COPY: tl.constexpr):
    """Add two buffers, a contiguous range per program.

    No launch has a negative `n`. The branch uses both inputs after the sum, so that the compiler gives the sum a buffer
    of its own, as the vendor's example does. In an input's buffer, the next load would wait for the sum's store.
    """
    each = tl.cdiv(n, CORES)
    first = tl.program_id(0) * each
    end = tl.minimum(first + each, n)
    for start in range(first, end, COPY):
        at = start + tl.arange(0, COPY)
        x = tl.load(x_ptr + at, mask=at < end, other=0.0)
        y = tl.load(y_ptr + at, mask=at < end, other=0.0)
        tl.store(out_ptr + at, x + y, mask=at < end)
        if n < 0:
            tl.store(out_ptr + at, x - y, mask=at < end)


@triton.jit
def touch_kernel(
    x_ptr,
    out_ptr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    TIMES: tl.constexpr,
    PARTS: tl.constexpr,
    SHARERS: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
):
    """Read tiles of a matrix and keep their sum; SHARERS programs read the same ROWS.

    The columns are cut into PARTS, and each part is read TIMES times before the next one.
    """
    first = tl.program_id(0) // SHARERS * ROWS
    total = tl.zeros([TILE_M, TILE_N], dtype=tl.float16)
    for part in range(PARTS):
        for _ in range(TIMES):
            for top in range(0, ROWS, TILE_M):
                for step in range(0, N // PARTS, TILE_N):
                    rows = first + top + tl.arange(0, TILE_M)
                    left = step if N // PARTS % TILE_N == 0 else tl.minimum(step, N // PARTS - TILE_N)
                    cols = part * (N // PARTS) + left + tl.arange(0, TILE_N)
                    total += tl.load(x_ptr + rows[:, None] * N + cols[None, :])
    at = tl.program_id(0) * TILE_M * TILE_N
    tl.store(out_ptr + at + tl.arange(0, TILE_M)[:, None] * TILE_N + tl.arange(0, TILE_N)[None, :], total)
