"""RMS normalisation over rows, alone and of a sum with a residual; see `tilewise.kernels.vector.rms_norm`.

A program takes BLOCK_SIZE_M rows, SUB_BLOCK_SIZE_M at a time, and computes in float32. If there are at least as many
rows as a step takes (`FITS_M`), no row is masked: a step that would cross the last row is moved back, and the rows of
the overlap are computed twice, to the same values.
"""

import triton
import triton.language as tl


@triton.jit
def _rows(trip, M, FITS_M: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, SUB_BLOCK_SIZE_M: tl.constexpr):
    """Return the rows of a program's step, in 64 bits, since M * N may exceed 2^31 elements."""
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE_M + trip * SUB_BLOCK_SIZE_M
    if FITS_M:
        start = tl.minimum(start, M - SUB_BLOCK_SIZE_M)
    return start + tl.arange(0, SUB_BLOCK_SIZE_M)


@triton.jit
def _load(ptr, rows, cols, M, N, FITS_M: tl.constexpr, FITS_N: tl.constexpr, POLICY: tl.constexpr):
    """Load a tile as float32, with 0 outside, which adds nothing to a sum of squares. POLICY is the eviction policy of
    an NVIDIA cache."""
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
def _weights(w_ptr, cols, N, FITS_N: tl.constexpr):
    if FITS_N:
        return tl.load(w_ptr + cols).to(tl.float32)
    return tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)


@triton.jit
def rms_norm_one_load_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    M,
    N,
    eps,
    FITS_M: tl.constexpr,
    FITS_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute `out[m] = x[m] / sqrt(mean(x[m]^2) + eps) * w`, with each row read once: BLOCK_SIZE_N >= N."""
    cols = tl.arange(0, BLOCK_SIZE_N)
    w = _weights(w_ptr, cols, N, FITS_N)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1, num_stages=NUM_STAGES):
        rows = _rows(trip, M, FITS_M, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M)
        x = _load(x_ptr, rows, cols, M, N, FITS_M, FITS_N, "evict_first")
        rstd = tl.rsqrt(tl.sum(x * x, axis=1) / N + eps)
        _store(out_ptr, rows, cols, x * rstd[:, None] * w[None, :], M, N, FITS_M, FITS_N)


@triton.jit
def rms_norm_looped_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    M,
    N,
    eps,
    FITS_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute the same for rows of any length N > BLOCK_SIZE_N, each read twice. EVEN_N: N is a multiple of it.

    Squares accumulate in a tile, which is reduced once. The second loop goes backwards, over data that the caches still
    hold, and moves its last block to the row's start.
    """
    for trip in range((BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1):
        rows = _rows(trip, M, FITS_M, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M)
        squares = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N], dtype=tl.float32)
        for left in tl.range(0, N, BLOCK_SIZE_N, num_stages=NUM_STAGES):
            x = _load(x_ptr, rows, left + tl.arange(0, BLOCK_SIZE_N), M, N, FITS_M, EVEN_N, "evict_last")
            squares += x * x
        rstd = tl.rsqrt(tl.sum(squares, axis=1) / N + eps)
        for done in tl.range(0, N, BLOCK_SIZE_N, num_stages=NUM_STAGES):
            cols = tl.maximum(N - BLOCK_SIZE_N - done, 0) + tl.arange(0, BLOCK_SIZE_N)
            x = _load(x_ptr, rows, cols, M, N, FITS_M, True, "evict_first")
            w = _weights(w_ptr, cols, N, True)
            _store(out_ptr, rows, cols, x * rstd[:, None] * w[None, :], M, N, FITS_M, True)


@triton.jit
def add_rms_norm_one_load_kernel(
    x_ptr,
    residual_ptr,
    w_ptr,
    sum_ptr,
    out_ptr,
    M,
    N,
    eps,
    FITS_M: tl.constexpr,
    FITS_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute `sum = x + residual` and its normalised rows, with each row read once: BLOCK_SIZE_N >= N."""
    cols = tl.arange(0, BLOCK_SIZE_N)
    w = _weights(w_ptr, cols, N, FITS_N)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1, num_stages=NUM_STAGES):
        rows = _rows(trip, M, FITS_M, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M)
        x = _load(x_ptr, rows, cols, M, N, FITS_M, FITS_N, "evict_first")
        x += _load(residual_ptr, rows, cols, M, N, FITS_M, FITS_N, "evict_first")
        _store(sum_ptr, rows, cols, x, M, N, FITS_M, FITS_N)
        rstd = tl.rsqrt(tl.sum(x * x, axis=1) / N + eps)
        _store(out_ptr, rows, cols, x * rstd[:, None] * w[None, :], M, N, FITS_M, FITS_N)


@triton.jit
def add_rms_norm_looped_kernel(
    x_ptr,
    residual_ptr,
    w_ptr,
    sum_ptr,
    out_ptr,
    M,
    N,
    eps,
    FITS_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute the same for rows of any length N > BLOCK_SIZE_N; see `rms_norm_looped_kernel`.

    x and residual are both read twice: a sum that was stored by other threads of the program may not be visible yet.
    """
    for trip in range((BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1):
        rows = _rows(trip, M, FITS_M, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M)
        squares = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N], dtype=tl.float32)
        for left in tl.range(0, N, BLOCK_SIZE_N, num_stages=NUM_STAGES):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            x = _load(x_ptr, rows, cols, M, N, FITS_M, EVEN_N, "evict_last")
            x += _load(residual_ptr, rows, cols, M, N, FITS_M, EVEN_N, "evict_last")
            squares += x * x
        rstd = tl.rsqrt(tl.sum(squares, axis=1) / N + eps)
        for done in tl.range(0, N, BLOCK_SIZE_N, num_stages=NUM_STAGES):
            cols = tl.maximum(N - BLOCK_SIZE_N - done, 0) + tl.arange(0, BLOCK_SIZE_N)
            x = _load(x_ptr, rows, cols, M, N, FITS_M, True, "evict_first")
            x += _load(residual_ptr, rows, cols, M, N, FITS_M, True, "evict_first")
            w = _weights(w_ptr, cols, N, True)
            _store(sum_ptr, rows, cols, x, M, N, FITS_M, True)
            _store(out_ptr, rows, cols, x * rstd[:, None] * w[None, :], M, N, FITS_M, True)
