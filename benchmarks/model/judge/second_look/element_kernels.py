"""Element-wise kernels and copies of the second look, written from what the published ones load, compute and store."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "affine_runtime_kernel",
    "affine_static_kernel",
    "conv_gather_kernel",
    "mse_backward_blocks_kernel",
    "mse_backward_kernel",
    "slot_mapping_kernel",
    "smooth_l1_backward_blocks_kernel",
    "smooth_l1_backward_kernel",
    "state_gather_kernel",
    "transpose_blocks_kernel",
    "transpose_tiles_kernel",
]


@triton.jit
def mse_backward_kernel(g_ptr, x_ptr, y_ptr, out_ptr, factor, BLOCK_SIZE: tl.constexpr):
    """One block per program, without a mask, in float32."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    g = tl.load(g_ptr + at).to(tl.float32)
    x = tl.load(x_ptr + at).to(tl.float32)
    y = tl.load(y_ptr + at).to(tl.float32)
    tl.store(out_ptr + at, ((factor * g) * (x - y)).to(out_ptr.dtype.element_ty))


@triton.jit
def mse_backward_blocks_kernel(g_ptr, x_ptr, y_ptr, out_ptr, COUNT, n, reduction, BLOCK_SIZE: tl.constexpr):
    """One masked block per program, divided by a count that depends on the reduction."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < n
    g = tl.load(g_ptr + at, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + at, mask=mask, other=0.0).to(tl.float32)
    by = tl.where(reduction == 1, COUNT, 1.0)
    tl.store(out_ptr + at, (2.0 * (x - y) * g / by).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def smooth_l1_backward_kernel(
    g_ptr, x_ptr, y_ptr, out_ptr, n, inverse, INVERSE_BETA: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    """One masked block per program; the gradient is one number."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + at, mask=mask, other=0.0).to(tl.float32)
    scaled = (x - y) * INVERSE_BETA
    slope = tl.where(scaled < -1.0, -1.0, tl.where(scaled > 1.0, 1.0, scaled))
    g = tl.load(g_ptr).to(tl.float32) * inverse
    tl.store(out_ptr + at, slope * g, mask=mask)


@triton.jit
def smooth_l1_backward_blocks_kernel(
    g_ptr, x_ptr, y_ptr, out_ptr, n, COUNT, BETA: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    """The same with a division by beta in each element and one by the count in each program."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + at, mask=mask, other=0.0).to(tl.float32)
    off = x - y
    slope = tl.where(off < -BETA, -1.0, tl.where(off > BETA, 1.0, off / BETA))
    g = tl.load(g_ptr).to(tl.float32) * (1.0 / COUNT)
    tl.store(out_ptr + at, slope * g, mask=mask)


@triton.jit
def transpose_tiles_kernel(
    x_ptr, out_ptr, ROWS, COLS, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr, TILES: tl.constexpr
):
    """Transpose whole tiles on chip, several along an output row per program."""
    across = COLS // (BLOCK_COLS * TILES)
    rows = tl.program_id(0) // across * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    left = tl.program_id(0) % across * (BLOCK_COLS * TILES)
    for tile in range(TILES):
        cols = left + tile * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
        x = tl.load(x_ptr + cols[:, None] * ROWS + rows[None, :])
        tl.store(out_ptr + rows[:, None] * COLS + cols[None, :], tl.trans(x))


@triton.jit
def transpose_blocks_kernel(
    x_ptr,
    out_ptr,
    X_ROW,
    X_COL,
    OUT_ROW,
    OUT_COL,
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Load a tile along its rows and store it along its columns, through 64-bit offsets."""
    i = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[None, :]
    j = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]
    mask = (i < N) & (j < M)
    x = tl.load(x_ptr + j * X_ROW + i * X_COL, mask=mask)
    tl.store(out_ptr + i * OUT_ROW + j * OUT_COL, x, mask=mask)


@triton.jit
def affine_runtime_kernel(x_ptr, out_ptr, ROWS, COLS, ROW_STRIDE, STRIDE, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Scale and shift a tile of elements that lie apart, by strides that are run-time arguments."""
    top, left = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    source = tl.make_block_ptr(x_ptr, (ROWS, COLS), (ROW_STRIDE, STRIDE), (top, left), (BLOCK_M, BLOCK_N), order=(1, 0))
    target = tl.make_block_ptr(out_ptr, (ROWS, COLS), (COLS, 1), (top, left), (BLOCK_M, BLOCK_N), order=(1, 0))
    tl.store(target, tl.load(source) * 1.001 + 0.125)


@triton.jit
def affine_static_kernel(
    x_ptr,
    out_ptr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ROW_STRIDE: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The same by strides that are known when it is compiled."""
    top, left = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    source = tl.make_block_ptr(x_ptr, (ROWS, COLS), (ROW_STRIDE, STRIDE), (top, left), (BLOCK_M, BLOCK_N), order=(1, 0))
    target = tl.make_block_ptr(out_ptr, (ROWS, COLS), (COLS, 1), (top, left), (BLOCK_M, BLOCK_N), order=(1, 0))
    tl.store(target, tl.load(source) * 1.001 + 0.125)


@triton.jit(do_not_specialize=["H", "K", "V"])
def state_gather_kernel(
    cache_ptr, index_ptr, has_ptr, out_ptr, H, K, V, HKV, VK, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Copy the state that an index names, turned, or zeros: one head and a block of V per program."""
    n, head = tl.program_id(0), tl.program_id(1)
    index = tl.load(index_ptr + n).to(tl.int64)
    valid = (index >= 0) & tl.load(has_ptr + n).to(tl.int1)
    k = tl.arange(0, BLOCK_K)
    v = tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    mask = (k < K)[:, None] & (v < V)[None, :]
    slot = tl.where(index >= 0, index, 0)
    at = slot * (H * VK) + head * VK + v[None, :] * K + k[:, None]
    x = tl.load(cache_ptr + at, mask=mask, other=0.0).to(out_ptr.dtype.element_ty)
    x = tl.where(valid, x, tl.zeros_like(x))
    tl.store(out_ptr + n * HKV + head * (K * V) + k[:, None] * V + v[None, :], x, mask=mask)


@triton.jit(do_not_specialize=["SIZE", "SLOT", "pad"])
def conv_gather_kernel(cache_ptr, index_ptr, local_ptr, out_ptr, SIZE, SLOT, pad, BLOCK_SIZE: tl.constexpr):
    """Copy the rows that indices name, in blocks, and number them."""
    n, block = tl.program_id(0), tl.program_id(1)
    index = tl.load(index_ptr + n).to(tl.int64)
    valid = index != pad
    at = block * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    row = tl.where(valid, index, 0)
    x = tl.load(cache_ptr + row * SLOT + at, mask=at < SIZE, other=0)
    tl.store(out_ptr + n * SIZE + at, x, mask=at < SIZE)
    if block == 0:
        tl.store(local_ptr + n, tl.where(valid, n, pad))


@triton.jit(do_not_specialize=["TOKENS", "MOST", "REQUESTS", "TABLE_ROW"])
def slot_mapping_kernel(
    TOKENS,
    MOST,
    starts_ptr,
    REQUESTS,
    positions_ptr,
    table_ptr,
    TABLE_ROW,
    out_ptr,
    PAGE: tl.constexpr,
    WORLD: tl.constexpr,
    RANK: tl.constexpr,
    INTERLEAVE: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """Look up the page of each token of a block of a request; the last row of programs fills what is left."""
    request = tl.program_id(0)
    first = tl.program_id(1) * BLOCK_SIZE
    lanes = tl.arange(0, BLOCK_SIZE)
    if request == REQUESTS:
        at = first + lanes
        nothing = tl.zeros((BLOCK_SIZE,), dtype=tl.int64) + PAD
        tl.store(out_ptr + at, nothing, mask=(at >= TOKENS) & (at < MOST))
        return
    start = tl.load(starts_ptr + request).to(tl.int32)
    end = tl.load(starts_ptr + request + 1).to(tl.int32)
    at = start + first + lanes
    mask = (at < end) & (at < MOST)
    if first >= end - start:
        return
    position = tl.load(positions_ptr + at, mask=mask, other=0).to(tl.int32)
    wide: tl.constexpr = PAGE * WORLD
    page = position // wide
    number = tl.load(table_ptr + request * TABLE_ROW + page, mask=mask, other=0)
    within = position - page * wide
    local = (within // INTERLEAVE) % WORLD == RANK
    offset = within // (WORLD * INTERLEAVE) * INTERLEAVE + within % INTERLEAVE
    slot = tl.where(local, number * PAGE + offset, PAD)
    tl.store(out_ptr + at, slot.to(tl.int64), mask=mask)
