"""Layer normalisation over rows, forward and backward; see `tilewise.kernels.vector.layer_norm` for the specs."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_one_load_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    M,
    N,
    eps,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    EVEN_N: tl.constexpr,
):
    """Normalise rows that fit on chip, with each element loaded once: BLOCK_SIZE_N >= N. EVEN_N: they are equal.

    The mean is corrected by the mean of the deviations from it, and the variance is taken around the corrected mean.
    So no large numbers cancel, however far the row is from zero, and the mean stays accurate for rows around zero.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK_SIZE_M  # 64 bits: M * N may exceed 2^31 elements
    end = tl.minimum(first + BLOCK_SIZE_M, M)
    cols = tl.arange(0, BLOCK_SIZE_N)
    inside = cols < N
    w = tl.load(w_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    for start in range(0, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M):
        rows = first + start + tl.arange(0, SUB_BLOCK_SIZE_M)
        at = rows[:, None] * N + cols[None, :]
        mask = (rows < end)[:, None] & inside[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        mean = tl.sum(x, axis=1) / N
        away = x - mean[:, None]
        if not EVEN_N:
            away = tl.where(inside[None, :], away, 0.0)
        rest = tl.sum(away, axis=1) / N
        away -= rest[:, None]
        if not EVEN_N:
            away = tl.where(inside[None, :], away, 0.0)
        rstd = tl.rsqrt(tl.sum(away * away, axis=1) / N + eps)
        y = away * rstd[:, None] * w[None, :] + b[None, :]
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=mask)
        tl.store(mean_ptr + rows, mean + rest, mask=rows < end)
        tl.store(rstd_ptr + rows, rstd, mask=rows < end)


@triton.jit
def layer_norm_looped_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    M,
    N,
    eps,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    EVEN_N: tl.constexpr,
):
    """Normalise rows of any length in two passes over column blocks: BLOCK_SIZE_N < N. EVEN_N: N is a multiple of it.

    The first pass sums `x - shift` and its square, where shift is the mean of the row's first block. The shift's
    distance from the row's mean is itself part of the row's variance. The square that is subtracted at the end is
    therefore at most N / BLOCK_SIZE_N times the remainder, and the error at most that many roundings, wherever the
    mean lies.

    The reduction is delayed: two [SUB_BLOCK_SIZE_M, BLOCK_SIZE_N] tiles accumulate over the column loop and are
    reduced once. Only the last block needs a select, so it comes after the loop.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK_SIZE_M  # 64 bits: M * N may exceed 2^31 elements
    end = tl.minimum(first + BLOCK_SIZE_M, M)
    whole = N // BLOCK_SIZE_N * BLOCK_SIZE_N
    block = tl.arange(0, BLOCK_SIZE_N)
    for start in range(0, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M):
        rows = first + start + tl.arange(0, SUB_BLOCK_SIZE_M)
        needed = (rows < end)[:, None]
        row = rows[:, None] * N
        x = tl.load(x_ptr + row + block[None, :], mask=needed, other=0.0, eviction_policy="evict_last").to(tl.float32)
        shift = tl.sum(x, axis=1) / BLOCK_SIZE_N
        sums = x - shift[:, None]
        squares = sums * sums
        for left in range(BLOCK_SIZE_N, whole, BLOCK_SIZE_N):
            at = x_ptr + row + (left + block)[None, :]
            x = tl.load(at, mask=needed, other=0.0, eviction_policy="evict_last").to(tl.float32)
            away = x - shift[:, None]
            sums += away
            squares += away * away
        if not EVEN_N:
            left_over = (whole + block < N)[None, :]
            x = tl.load(x_ptr + row + (whole + block)[None, :], mask=needed & left_over, other=0.0).to(tl.float32)
            last = tl.where(left_over, x - shift[:, None], 0.0)
            sums += last
            squares += last * last
        rest = tl.sum(sums, axis=1) / N
        rstd = tl.rsqrt(tl.sum(squares, axis=1) / N - rest * rest + eps)
        tl.store(mean_ptr + rows, shift + rest, mask=rows < end)
        tl.store(rstd_ptr + rows, rstd, mask=rows < end)
        for left in range(0, N, BLOCK_SIZE_N):
            cols = left + block
            inside = cols < N
            mask = needed & inside[None, :]
            at = x_ptr + row + cols[None, :]
            x = tl.load(at, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            w = tl.load(w_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            b = tl.load(b_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            y = (x - shift[:, None] - rest[:, None]) * rstd[:, None] * w[None, :] + b[None, :]
            tl.store(y_ptr + row + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _gradients_of_rows(
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    M,
    N,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
):
    """Store dx of this program's rows (at most BLOCK_SIZE_M), each element loaded once; return the sums for dw and db.

    Sub-tiles are dealt to the programs in turn, so that all programs read close together in memory at any time. The
    sums accumulate in tiles, which are reduced over rows once. Elements outside are loaded as zeros, which add nothing.
    """
    first = tl.program_id(0).to(tl.int64) * SUB_BLOCK_SIZE_M  # 64 bits: M * N may exceed 2^31 elements
    stride = tl.num_programs(0) * SUB_BLOCK_SIZE_M
    cols = tl.arange(0, BLOCK_SIZE_N)
    inside = cols < N
    w = tl.load(w_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    dw = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N], dtype=tl.float32)
    db = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N], dtype=tl.float32)
    for trip in range((BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1):
        rows = first + trip * stride + tl.arange(0, SUB_BLOCK_SIZE_M)
        at = rows[:, None] * N + cols[None, :]
        mask = (rows < M)[:, None] & inside[None, :]
        dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
        normal = (x - mean[:, None]) * rstd[:, None]
        db += dy
        dw += dy * normal
        dy *= w[None, :]
        along = tl.sum(dy * normal, axis=1) / N
        level = tl.sum(dy, axis=1) / N
        dx = (dy - normal * along[:, None] - level[:, None]) * rstd[:, None]
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    return tl.sum(dw, axis=0), tl.sum(db, axis=0)


@triton.jit
def layer_norm_backward_atomic_kernel(
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dw_ptr,
    db_ptr,
    M,
    N,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
):
    """Compute dx of up to BLOCK_SIZE_M rows, and add their dw and db to the outputs atomically; BLOCK_SIZE_N >= N."""
    dw, db = _gradients_of_rows(
        dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, M, N, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M, BLOCK_SIZE_N
    )
    cols = tl.arange(0, BLOCK_SIZE_N)
    tl.atomic_add(dw_ptr + cols, dw, mask=cols < N)
    tl.atomic_add(db_ptr + cols, db, mask=cols < N)


@triton.jit
def layer_norm_backward_parts_kernel(
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dw_parts_ptr,
    db_parts_ptr,
    M,
    N,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
):
    """Like the atomic kernel, but each program stores dw and db as one row of parts, which the merge kernel sums."""
    dw, db = _gradients_of_rows(
        dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, M, N, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M, BLOCK_SIZE_N
    )
    cols = tl.arange(0, BLOCK_SIZE_N)
    at = tl.program_id(0) * N + cols
    tl.store(dw_parts_ptr + at, dw, mask=cols < N)
    tl.store(db_parts_ptr + at, db, mask=cols < N)


@triton.jit
def layer_norm_backward_merge_kernel(
    dw_parts_ptr,
    db_parts_ptr,
    dw_ptr,
    db_ptr,
    N,
    PARTS: tl.constexpr,
    STEP_M: tl.constexpr,
    STEP_N: tl.constexpr,
):
    """Sum the PARTS rows of dw and db, STEP_N columns per program."""
    cols = tl.program_id(0) * STEP_N + tl.arange(0, STEP_N)
    dw = tl.zeros([STEP_M, STEP_N], dtype=tl.float32)
    db = tl.zeros([STEP_M, STEP_N], dtype=tl.float32)
    for start in range(0, PARTS, STEP_M):
        rows = start + tl.arange(0, STEP_M)
        at = rows[:, None] * N + cols[None, :]
        mask = (rows < PARTS)[:, None] & (cols < N)[None, :]
        dw += tl.load(dw_parts_ptr + at, mask=mask, other=0.0)
        db += tl.load(db_parts_ptr + at, mask=mask, other=0.0)
    tl.store(dw_ptr + cols, tl.sum(dw, axis=0), mask=cols < N)
    tl.store(db_ptr + cols, tl.sum(db, axis=0), mask=cols < N)


@triton.jit
def layer_norm_backward_sums_kernel(
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    along_ptr,
    level_ptr,
    M,
    N,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
):
    """Compute the two sums over whole rows that dx needs, the share of dx along x and its level, for BLOCK_SIZE_M rows
    of any length."""
    first = tl.program_id(0).to(tl.int64) * BLOCK_SIZE_M  # 64 bits: M * N may exceed 2^31 elements
    end = tl.minimum(first + BLOCK_SIZE_M, M)
    for start in range(0, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M):
        rows = first + start + tl.arange(0, SUB_BLOCK_SIZE_M)
        mean = tl.load(mean_ptr + rows, mask=rows < end, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < end, other=0.0)
        alongs = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N], dtype=tl.float32)
        levels = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N], dtype=tl.float32)
        for left in range(0, N, BLOCK_SIZE_N):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            at = rows[:, None] * N + cols[None, :]
            mask = (rows < end)[:, None] & (cols < N)[None, :]
            w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32) * w[None, :]
            x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
            levels += dy
            alongs += dy * (x - mean[:, None])
        along = tl.sum(alongs, axis=1) * rstd * rstd / N  # sums of x - mean, so that no loop scales x
        tl.store(along_ptr + rows, along, mask=rows < end)
        tl.store(level_ptr + rows, tl.sum(levels, axis=1) / N, mask=rows < end)


@triton.jit
def layer_norm_backward_apply_kernel(
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    along_ptr,
    level_ptr,
    dx_ptr,
    dw_ptr,
    db_ptr,
    M,
    N,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    STEP_M: tl.constexpr,
    STEP_N: tl.constexpr,
):
    """Compute dx, dw and db of one of COLUMNS blocks of STEP_N columns, over ROWS rows, STEP_M at a time.

    dw and db accumulate over the rows and are added to the outputs atomically.
    """
    program = tl.program_id(0)
    cols = program % COLUMNS * STEP_N + tl.arange(0, STEP_N)
    first = (program // COLUMNS).to(tl.int64) * ROWS  # 64 bits: M * N may exceed 2^31 elements
    end = tl.minimum(first + ROWS, M)
    w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    dw = tl.zeros([STEP_M, STEP_N], dtype=tl.float32)
    db = tl.zeros([STEP_M, STEP_N], dtype=tl.float32)
    for start in range(0, ROWS, STEP_M):
        rows = first + start + tl.arange(0, STEP_M)
        at = rows[:, None] * N + cols[None, :]
        mask = (rows < end)[:, None] & (cols < N)[None, :]
        dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < end, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < end, other=0.0)
        along = tl.load(along_ptr + rows, mask=rows < end, other=0.0)
        level = tl.load(level_ptr + rows, mask=rows < end, other=0.0)
        away = x - mean[:, None]
        db += dy
        dw += dy * away * rstd[:, None]
        dx = (dy * w[None, :] - away * along[:, None] - level[:, None]) * rstd[:, None]
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    tl.atomic_add(dw_ptr + cols, tl.sum(dw, axis=0), mask=cols < N)
    tl.atomic_add(db_ptr + cols, tl.sum(db, axis=0), mask=cols < N)
