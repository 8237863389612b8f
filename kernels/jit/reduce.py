"""Reductions of rows, and of everything as one long row; see `tilewise.kernels.vector.reduce` for the specs.

A program takes BLOCK_SIZE_M rows and, of each, the BLOCK_SIZE_N columns of one of PARTS parts. OP is "sum", "prod" or
"max". NEUTRAL is its neutral element, loaded for elements outside the matrix so that no select is needed. Parts share
the grid's first axis with the rows, because CUDA allows at most 65535 programs along the others.
"""

import triton
import triton.language as tl


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def _maximum(a, b):
    """Return the maximum, or NaN if either is NaN: torch's semantics, and on Ascend one instruction instead of four."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _accumulate(total, x, OP: tl.constexpr):
    if OP == "sum":
        combined = _add(total, x)
    elif OP == "prod":
        combined = _multiply(total, x)
    else:
        combined = _maximum(total, x)
    return combined


@triton.jit
def _reduce_tile(tile, OP: tl.constexpr):
    """Reduce each row of a tile to one value, pairwise."""
    if OP == "sum":
        reduced = tl.reduce(tile, 1, _add)
    elif OP == "prod":
        reduced = tl.reduce(tile, 1, _multiply)
    else:
        reduced = tl.reduce(tile, 1, _maximum)
    return reduced


@triton.jit
def _widened(x, OP: tl.constexpr):
    """Convert to float32, except for a maximum of float16, which is exact as it is; bfloat16 has no arithmetic."""
    return x if OP == "max" and x.dtype == tl.float16 else x.to(tl.float32)


@triton.jit
def _reduce_part(
    x_ptr,
    rows,
    end,
    N,
    part,
    OP: tl.constexpr,
    NEUTRAL: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    SUB_BLOCK_SIZE_N: tl.constexpr,
    EVICT_FIRST: tl.constexpr,
):
    """Reduce each row before `end` over one part of its N columns; return [SUB_BLOCK_SIZE_M], dtype as `_widened`.

    The reduction is delayed: the part's first tile accumulates the others element by element and is reduced once. A
    part of a single tile has no loop. EVICT_FIRST makes an NVIDIA cache evict the inputs first.
    """
    policy: tl.constexpr = "evict_first" if EVICT_FIRST else ""
    left = part.to(tl.int64) * BLOCK_SIZE_N  # 64 bits: left + BLOCK_SIZE_N may exceed 2^31
    width = (tl.minimum(left + BLOCK_SIZE_N, N) - left).to(tl.int32)
    cols = tl.arange(0, SUB_BLOCK_SIZE_N)
    at = x_ptr + left + rows[:, None] * N + cols[None, :]
    inside = (rows < end)[:, None]
    total = _widened(tl.load(at, mask=inside & (cols < width)[None, :], other=NEUTRAL, eviction_policy=policy), OP)
    if BLOCK_SIZE_N > SUB_BLOCK_SIZE_N:
        for start in range(SUB_BLOCK_SIZE_N, width, SUB_BLOCK_SIZE_N):
            mask = inside & (start + cols < width)[None, :]
            x = tl.load(at + start, mask=mask, other=NEUTRAL, eviction_policy=policy)
            total = _accumulate(total, _widened(x, OP), OP)
    return _reduce_tile(total, OP)


@triton.jit
def reduce_kernel(
    x_ptr,
    out_ptr,
    M,
    N,
    OP: tl.constexpr,
    NEUTRAL: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    SUB_BLOCK_SIZE_N: tl.constexpr,
    EVICT_FIRST: tl.constexpr = False,
):
    """Reduce row m to `out[m]`: by a store if one program takes the whole row, else by an atomic add or maximum."""
    first = (tl.program_id(0) // PARTS).to(tl.int64) * BLOCK_SIZE_M  # 64 bits: M * N may exceed 2^31 elements
    part = tl.program_id(0) % PARTS
    end = tl.minimum(first + BLOCK_SIZE_M, M)
    for start in range(0, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M):
        rows = first + start + tl.arange(0, SUB_BLOCK_SIZE_M)
        reduced = _reduce_part(x_ptr, rows, end, N, part, OP, NEUTRAL, BLOCK_SIZE_N, SUB_BLOCK_SIZE_N, EVICT_FIRST)
        if PARTS == 1:
            tl.store(out_ptr + rows, reduced, mask=rows < end)
        elif OP == "sum":
            tl.atomic_add(out_ptr + rows, reduced, mask=rows < end, sem="relaxed")
        else:
            tl.static_assert(OP == "max", "a product has no atomic")
            tl.atomic_max(out_ptr + rows, reduced, mask=rows < end, sem="relaxed")


@triton.jit
def reduce_parts_kernel(
    x_ptr,
    partial_ptr,
    M,
    N,
    OP: tl.constexpr,
    NEUTRAL: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    SUB_BLOCK_SIZE_N: tl.constexpr,
    EVICT_FIRST: tl.constexpr = False,
):
    """Run the first stage: store `partial[m, part]` in float32."""
    first = (tl.program_id(0) // PARTS).to(tl.int64) * BLOCK_SIZE_M
    part = tl.program_id(0) % PARTS
    end = tl.minimum(first + BLOCK_SIZE_M, M)
    for start in range(0, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M):
        rows = first + start + tl.arange(0, SUB_BLOCK_SIZE_M)
        reduced = _reduce_part(x_ptr, rows, end, N, part, OP, NEUTRAL, BLOCK_SIZE_N, SUB_BLOCK_SIZE_N, EVICT_FIRST)
        tl.store(partial_ptr + rows * PARTS + part, reduced, mask=rows < end)


@triton.jit
def combine_kernel(
    partial_ptr,
    out_ptr,
    M,
    OP: tl.constexpr,
    NEUTRAL: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Run the second stage: reduce `partial[m, :]` to `out[m]`, in tiles of [ROWS, COLS]."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    rows = first + tl.arange(0, ROWS)
    whole = tl.program_id(0) * 0
    reduced = _reduce_part(partial_ptr, rows, M, PARTS, whole, OP, NEUTRAL, PARTS, COLS, False)
    tl.store(out_ptr + rows, reduced, mask=rows < M)
