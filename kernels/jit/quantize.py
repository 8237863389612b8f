"""Quantisation with a scale per row or per block of a row; see `tilewise.kernels.vector.quantize` for the specs.

LARGEST is the largest number of the quantised dtype: a scale maps the largest magnitude of its numbers to it. The
magnitudes are at least TINY, so that a block of zeros has a scale that can be divided by.
"""

import triton
import triton.language as tl

TINY = tl.constexpr(1e-30)
_MIDDLE = tl.constexpr(12582912.0)  # 1.5 * 2^23: a float32 of this size has no fraction


@triton.jit
def _narrowed(y, out_ptr):
    """Return y as numbers of the output: integers to the nearest, ties to even, before the conversion that would cut
    their fraction off. It is one of a vector: Ascend narrows a tile of one row as 32 rows."""
    if out_ptr.dtype.element_ty.is_int():
        y = (y + _MIDDLE) - _MIDDLE
        return tl.reshape(tl.reshape(y, [y.shape[0] * y.shape[1]]).to(out_ptr.dtype.element_ty), y.shape)
    return y.to(out_ptr.dtype.element_ty)


@triton.jit
def _rows(trip, M, FITS_M: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, SUB_BLOCK_SIZE_M: tl.constexpr):
    """Return the rows of a program's step, in 64 bits, since M * N may exceed 2^31 elements."""
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE_M + trip * SUB_BLOCK_SIZE_M
    if FITS_M:
        start = tl.minimum(start, M - SUB_BLOCK_SIZE_M)
    return start + tl.arange(0, SUB_BLOCK_SIZE_M)


@triton.jit
def _load(ptr, rows, cols, M, N, FITS_M: tl.constexpr, FITS_N: tl.constexpr, POLICY: tl.constexpr):
    """Load a tile as float32, with 0 outside. POLICY is the eviction policy of an NVIDIA cache."""
    at = rows[:, None] * N + cols[None, :]
    if FITS_M and FITS_N:
        x = tl.load(ptr + at, eviction_policy=POLICY)
    elif FITS_M:
        x = tl.load(ptr + at, mask=(cols < N)[None, :], other=0.0, eviction_policy=POLICY)
    else:
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        x = tl.load(ptr + at, mask=mask, other=0.0, eviction_policy=POLICY)
    return x.to(tl.float32)


@triton.jit
def _store(ptr, rows, cols, y, M, N, FITS_M: tl.constexpr, FITS_N: tl.constexpr):
    at = rows[:, None] * N + cols[None, :]
    if FITS_M and FITS_N:
        tl.store(ptr + at, y)
    elif FITS_M:
        tl.store(ptr + at, y, mask=(cols < N)[None, :])
    else:
        tl.store(ptr + at, y, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def _store_scales(scale_ptr, rows, scale, M, FITS_M: tl.constexpr):
    if FITS_M:
        tl.store(scale_ptr + rows, scale)
    else:
        tl.store(scale_ptr + rows, scale, mask=rows < M)


@triton.jit
def quantize_rows_one_load_kernel(
    x_ptr,
    out_ptr,
    scale_ptr,
    M,
    N,
    FITS_M: tl.constexpr,
    FITS_N: tl.constexpr,
    LARGEST: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute `scale[m] = max |x[m]| / LARGEST` and `out[m] = x[m] / scale[m]`, with each row read once:
    BLOCK_SIZE_N >= N."""
    cols = tl.arange(0, BLOCK_SIZE_N)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1, num_stages=NUM_STAGES):
        rows = _rows(trip, M, FITS_M, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M)
        x = _load(x_ptr, rows, cols, M, N, FITS_M, FITS_N, "evict_first")
        most = tl.maximum(tl.max(tl.abs(x), axis=1), TINY)
        _store_scales(scale_ptr, rows, most / LARGEST, M, FITS_M)
        _store(out_ptr, rows, cols, _narrowed(x * (LARGEST / most)[:, None], out_ptr), M, N, FITS_M, FITS_N)


@triton.jit
def quantize_rows_looped_kernel(
    x_ptr,
    out_ptr,
    scale_ptr,
    M,
    N,
    FITS_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    LARGEST: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute the same for rows of any length N > BLOCK_SIZE_N, each read twice. EVEN_N: N is a multiple of it.

    The second loop goes backwards, over data that the caches still hold, and moves its last block to the row's start.
    """
    for trip in range((BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1):
        rows = _rows(trip, M, FITS_M, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M)
        peaks = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N], dtype=tl.float32)
        for left in tl.range(0, N, BLOCK_SIZE_N, num_stages=NUM_STAGES):
            x = _load(x_ptr, rows, left + tl.arange(0, BLOCK_SIZE_N), M, N, FITS_M, EVEN_N, "evict_last")
            peaks = tl.maximum(peaks, tl.abs(x))
        most = tl.maximum(tl.max(peaks, axis=1), TINY)
        _store_scales(scale_ptr, rows, most / LARGEST, M, FITS_M)
        inverse = (LARGEST / most)[:, None]
        for done in tl.range(0, N, BLOCK_SIZE_N, num_stages=NUM_STAGES):
            cols = tl.maximum(N - BLOCK_SIZE_N - done, 0) + tl.arange(0, BLOCK_SIZE_N)
            x = _load(x_ptr, rows, cols, M, N, FITS_M, True, "evict_first")
            _store(out_ptr, rows, cols, _narrowed(x * inverse, out_ptr), M, N, FITS_M, True)


@triton.jit
def quantize_blocks_kernel(
    x_ptr,
    out_ptr,
    scale_ptr,
    M,
    N,
    FITS_M: tl.constexpr,
    FITS_N: tl.constexpr,
    LARGEST: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute the same with a scale for each GROUP columns of a row; the last block of a row may be shorter.

    A program takes BLOCK_SIZE_N columns, a multiple of GROUP, of BLOCK_SIZE_M rows. FITS_N: every row is whole groups,
    and at least BLOCK_SIZE_N columns.
    """
    taken: tl.constexpr = BLOCK_SIZE_N // GROUP
    groups = (N - 1) // GROUP + 1
    parts = (groups - 1) // taken + 1
    first = tl.program_id(0) % parts * taken
    first_m = (tl.program_id(0) // parts).to(tl.int64) * BLOCK_SIZE_M  # 64 bits: there may be 2^31 elements
    if FITS_N:
        first = tl.minimum(first, groups - taken)
    group = first + tl.arange(0, taken)
    cols = first * GROUP + tl.arange(0, BLOCK_SIZE_N)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1, num_stages=NUM_STAGES):
        start = first_m + trip * SUB_BLOCK_SIZE_M
        if FITS_M:
            start = tl.minimum(start, M - SUB_BLOCK_SIZE_M)
        rows = start + tl.arange(0, SUB_BLOCK_SIZE_M)
        x = _load(x_ptr, rows, cols, M, N, FITS_M, FITS_N, "evict_first")
        x = tl.reshape(x, [SUB_BLOCK_SIZE_M, taken, GROUP])
        most = tl.maximum(tl.max(tl.abs(x), axis=2), TINY)
        y = tl.reshape(x * (LARGEST / most)[:, :, None], [SUB_BLOCK_SIZE_M, BLOCK_SIZE_N])
        _store(out_ptr, rows, cols, _narrowed(y, out_ptr), M, N, FITS_M, FITS_N)
        _store(scale_ptr, rows, group, most / LARGEST, M, groups, FITS_M, FITS_N)
