"""Softmax and log-softmax over rows; see `tilewise.kernels.vector.softmax` for the specs.

Both kernels take BLOCK_SIZE_M rows per program, ROWS_PER_BLOCK at a time, and compute in float32. If there are at least
as many rows as a step takes (`FITS_M`), no row is masked: a step that would cross the last row is moved back, and the
rows of the overlap are computed twice, to the same values.

As in torch, a row with a NaN, with +inf, or of -inf alone becomes NaN. -inf among finite numbers becomes 0 (in the
logarithm: -inf).
"""

import triton
import triton.language as tl


@triton.jit
def _rows(trip, M, FITS_M: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, ROWS_PER_BLOCK: tl.constexpr):
    """Return the rows of a program's step, in 64 bits, since M * N may exceed 2^31 elements."""
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE_M + trip * ROWS_PER_BLOCK
    if FITS_M:
        start = tl.minimum(start, M - ROWS_PER_BLOCK)
    return start + tl.arange(0, ROWS_PER_BLOCK)


@triton.jit
def _load(x_ptr, rows, cols, M, N, FITS_M: tl.constexpr, FITS_N: tl.constexpr, POLICY: tl.constexpr):
    """Load a tile as float32, with -inf for columns outside the matrix, which changes neither maximum nor sum.
    POLICY is the eviction policy of an NVIDIA cache: "evict_last" for data that is read again."""
    at = rows[:, None] * N + cols[None, :]
    if FITS_M and FITS_N:
        x = tl.load(x_ptr + at, eviction_policy=POLICY)
    elif FITS_M:
        x = tl.load(x_ptr + at, mask=(cols < N)[None, :], other=float("-inf"), eviction_policy=POLICY)
    else:
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=float("-inf"), eviction_policy=POLICY)
    return x.to(tl.float32)


@triton.jit
def _store(out_ptr, rows, cols, y, M, N, FITS_M: tl.constexpr, FITS_N: tl.constexpr):
    at = rows[:, None] * N + cols[None, :]
    if FITS_M and FITS_N:
        tl.store(out_ptr + at, y)
    elif FITS_M:
        tl.store(out_ptr + at, y, mask=(cols < N)[None, :])
    else:
        tl.store(out_ptr + at, y, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def softmax_one_load_kernel(
    x_ptr,
    out_ptr,
    M,
    N,
    LOG: tl.constexpr,
    FITS_M: tl.constexpr,
    FITS_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    ROWS_PER_BLOCK: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute `out[m] = softmax(x[m])`, or its logarithm, with each row read once: BLOCK_SIZE_N >= N. FITS_N: equal."""
    cols = tl.arange(0, BLOCK_SIZE_N)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // ROWS_PER_BLOCK + 1, num_stages=NUM_STAGES):
        rows = _rows(trip, M, FITS_M, BLOCK_SIZE_M, ROWS_PER_BLOCK)
        x = _load(x_ptr, rows, cols, M, N, FITS_M, FITS_N, "")
        x = x - tl.max(x, axis=1)[:, None]
        power = tl.exp(x)
        total = tl.sum(power, axis=1)
        y = x - tl.log(total)[:, None] if LOG else power * (1.0 / total)[:, None]
        _store(out_ptr, rows, cols, y, M, N, FITS_M, FITS_N)


@triton.jit
def softmax_online_kernel(
    x_ptr,
    out_ptr,
    M,
    N,
    LOG: tl.constexpr,
    FITS_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    ROWS_PER_BLOCK: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute the same for rows of any length N > BLOCK_SIZE_N, each read twice. EVEN_N: N is a multiple of it.

    The first loop keeps the maximum so far and the sum of exponentials relative to it, which is scaled down whenever
    the maximum rises. The maximum starts from the lowest finite number, since -inf - -inf would turn a row that merely
    starts with -inf into NaN. The second loop goes backwards, over data that the caches still hold, and moves its last
    block to the row's start.
    """
    for trip in range((BLOCK_SIZE_M - 1) // ROWS_PER_BLOCK + 1):
        rows = _rows(trip, M, FITS_M, BLOCK_SIZE_M, ROWS_PER_BLOCK)
        peak = tl.full([ROWS_PER_BLOCK], -3.4028234663852886e38, dtype=tl.float32)
        total = tl.zeros([ROWS_PER_BLOCK], dtype=tl.float32)
        for left in tl.range(0, N, BLOCK_SIZE_N, num_stages=NUM_STAGES):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            x = _load(x_ptr, rows, cols, M, N, FITS_M, EVEN_N, "evict_last")
            higher = tl.maximum(peak, tl.max(x, axis=1), propagate_nan=tl.PropagateNan.ALL)
            total = total * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher[:, None]), axis=1)
            peak = higher
        scale = tl.log(total) if LOG else 1.0 / total
        for done in tl.range(0, N, BLOCK_SIZE_N, num_stages=NUM_STAGES):
            cols = tl.maximum(N - BLOCK_SIZE_N - done, 0) + tl.arange(0, BLOCK_SIZE_N)
            x = _load(x_ptr, rows, cols, M, N, FITS_M, True, "evict_first") - peak[:, None]
            y = x - scale[:, None] if LOG else tl.exp(x) * scale[:, None]
            _store(out_ptr, rows, cols, y, M, N, FITS_M, True)


@triton.jit
def _store_losses(x_ptr, target_ptr, loss_ptr, rows, peak, total, M, N, FITS_M: tl.constexpr):
    """Store `log(sum of exp(x)) - x[target]` of each row, or 0 for a row whose target is negative."""
    target = tl.load(target_ptr + rows) if FITS_M else tl.load(target_ptr + rows, mask=rows < M, other=-1)
    chosen = tl.load(x_ptr + rows * N + target, mask=target >= 0, other=0.0).to(tl.float32)
    loss = tl.where(target >= 0, tl.log(total) + (peak - chosen), 0.0)
    if FITS_M:
        tl.store(loss_ptr + rows, loss)
    else:
        tl.store(loss_ptr + rows, loss, mask=rows < M)


@triton.jit
def cross_entropy_one_load_kernel(
    x_ptr,
    target_ptr,
    loss_ptr,
    M,
    N,
    FITS_M: tl.constexpr,
    FITS_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute `loss[m] = -log_softmax(x[m])[target[m]]` with each row in one tile: BLOCK_SIZE_N >= N. FITS_N: equal."""
    cols = tl.arange(0, BLOCK_SIZE_N)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1, num_stages=NUM_STAGES):
        rows = _rows(trip, M, FITS_M, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M)
        x = _load(x_ptr, rows, cols, M, N, FITS_M, FITS_N, "")
        peak = tl.max(x, axis=1)
        total = tl.sum(tl.exp(x - peak[:, None]), axis=1)
        _store_losses(x_ptr, target_ptr, loss_ptr, rows, peak, total, M, N, FITS_M)


@triton.jit
def cross_entropy_looped_kernel(
    x_ptr,
    target_ptr,
    loss_ptr,
    M,
    N,
    FITS_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute the same for rows of any length, each read once in parts. EVEN_N: N is a multiple of BLOCK_SIZE_N.

    Each group of GROUP columns of the tile keeps its own maximum and sum; they are merged once. A group that one thread
    loads needs no reduction between threads, and scales its old sum once for all of its columns.
    """
    for trip in range((BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1):
        rows = _rows(trip, M, FITS_M, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M)
        peaks = tl.full([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N // GROUP], -3.4028234663852886e38, dtype=tl.float32)
        totals = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N // GROUP], dtype=tl.float32)
        for left in tl.range(0, N, BLOCK_SIZE_N, num_stages=NUM_STAGES):
            x = _load(x_ptr, rows, left + tl.arange(0, BLOCK_SIZE_N), M, N, FITS_M, EVEN_N, "evict_first")
            if GROUP == 1:
                higher = tl.maximum(peaks, x, propagate_nan=tl.PropagateNan.ALL)
                terms = tl.exp(x - higher)
            else:
                groups = tl.reshape(x, [SUB_BLOCK_SIZE_M, BLOCK_SIZE_N // GROUP, GROUP])
                higher = tl.maximum(peaks, tl.max(groups, axis=2), propagate_nan=tl.PropagateNan.ALL)
                terms = tl.sum(tl.exp(groups - higher[:, :, None]), axis=2)
            totals = totals * tl.exp(peaks - higher) + terms
            peaks = higher
        peak = tl.max(peaks, axis=1)
        total = tl.sum(totals * tl.exp(peaks - peak[:, None]), axis=1)
        _store_losses(x_ptr, target_ptr, loss_ptr, rows, peak, total, M, N, FITS_M)
