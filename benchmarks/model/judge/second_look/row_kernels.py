"""Kernels of the second look that reduce, scan or convolve, written from what the published ones load and compute."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "conv_backward_kernel",
    "conv_forward_kernel",
    "gate_cumsum_kernel",
    "min_middle_kernel",
    "min_rows_kernel",
    "norm_apply_kernel",
    "norm_channel_kernel",
    "norm_sums_kernel",
    "prelu_backward_kernel",
    "prelu_total_kernel",
]


@triton.jit
def prelu_backward_kernel(
    g_ptr, x_ptr, w_ptr, out_ptr, parts_ptr, n, TRIPS, BLOCK_SIZE: tl.constexpr, MASKED: tl.constexpr
):
    """Gradients of a contiguous span per program, and its sum for the one weight."""
    weight = tl.load(w_ptr)
    first = tl.program_id(0) * (BLOCK_SIZE * TRIPS)
    total = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for trip in range(TRIPS):
        at = first + trip * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        if MASKED:
            g = tl.load(g_ptr + at, mask=at < n, other=0.0)
            x = tl.load(x_ptr + at, mask=at < n, other=0.0)
            tl.store(out_ptr + at, tl.where(x > 0, g, g * weight), mask=at < n)
        else:
            g = tl.load(g_ptr + at)
            x = tl.load(x_ptr + at)
            tl.store(out_ptr + at, tl.where(x > 0, g, g * weight))
        total += tl.where(x < 0, g * x, 0.0).to(tl.float32)
    tl.store(parts_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def prelu_total_kernel(parts_ptr, gw_ptr, PARTS, BLOCK_PARTS: tl.constexpr):
    """Sum of all programs' sums."""
    total = tl.zeros((BLOCK_PARTS,), dtype=tl.float32)
    for start in range(0, PARTS, BLOCK_PARTS):
        at = start + tl.arange(0, BLOCK_PARTS)
        total += tl.load(parts_ptr + at, mask=at < PARTS, other=0.0)
    tl.store(gw_ptr, tl.sum(total, axis=0))


@triton.jit
def norm_sums_kernel(
    g_ptr,
    x_ptr,
    mean_ptr,
    var_ptr,
    sums_ptr,
    products_ptr,
    N,
    S,
    GROUPS,
    PER,
    eps,
    ROW,
    CHANNEL,
    BLOCK_S: tl.constexpr,
):
    """Sums of the gradient, and of it times the normalised input, over a group of one channel's rows."""
    channel, group = tl.program_id(0), tl.program_id(1)
    mean = tl.load(mean_ptr + channel).to(tl.float32)
    inverse = 1.0 / tl.sqrt(tl.load(var_ptr + channel).to(tl.float32) + eps)
    lanes = tl.arange(0, BLOCK_S)
    total = tl.zeros((BLOCK_S,), dtype=tl.float32)
    product = tl.zeros((BLOCK_S,), dtype=tl.float32)
    for row in range(group * PER, tl.minimum(group * PER + PER, N)):
        at = channel * CHANNEL + row * ROW
        for left in range(0, S, BLOCK_S):
            g = tl.load(g_ptr + at + left + lanes).to(tl.float32)
            total += g
            x = tl.load(x_ptr + at + left + lanes).to(tl.float32)
            product += g * (x - mean) * inverse
    tl.store(sums_ptr + channel * GROUPS + group, tl.sum(total))
    tl.store(products_ptr + channel * GROUPS + group, tl.sum(product))


@triton.jit
def norm_apply_kernel(
    g_ptr,
    x_ptr,
    mean_ptr,
    var_ptr,
    w_ptr,
    sums_ptr,
    products_ptr,
    gw_ptr,
    gb_ptr,
    out_ptr,
    N,
    S,
    GROUPS,
    PER,
    count,
    eps,
    ROW,
    CHANNEL,
    BLOCK_S: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
):
    """Add up the groups' sums, and give the gradient of a group of one channel's rows."""
    channel, group = tl.program_id(0), tl.program_id(1)
    totals = tl.zeros((BLOCK_GROUPS,), dtype=tl.float32)
    products = tl.zeros((BLOCK_GROUPS,), dtype=tl.float32)
    for start in range(0, GROUPS, BLOCK_GROUPS):
        each = start + tl.arange(0, BLOCK_GROUPS)
        totals += tl.load(sums_ptr + channel * GROUPS + each, mask=each < GROUPS, other=0.0)
        products += tl.load(products_ptr + channel * GROUPS + each, mask=each < GROUPS, other=0.0)
    total = tl.sum(totals)
    product = tl.sum(products)
    mean = tl.load(mean_ptr + channel).to(tl.float32)
    inverse = 1.0 / tl.sqrt(tl.load(var_ptr + channel).to(tl.float32) + eps)
    weight = tl.load(w_ptr + channel).to(tl.float32)
    if group == 0:
        tl.store(gw_ptr + channel, product)
        tl.store(gb_ptr + channel, total)
    lanes = tl.arange(0, BLOCK_S)
    for row in range(group * PER, tl.minimum(group * PER + PER, N)):
        at = channel * CHANNEL + row * ROW
        for left in range(0, S, BLOCK_S):
            g = tl.load(g_ptr + at + left + lanes).to(tl.float32)
            normed = (tl.load(x_ptr + at + left + lanes).to(tl.float32) - mean) * inverse
            y = (g - (product * normed + total) / count) * inverse * weight
            tl.store(out_ptr + at + left + lanes, y.to(out_ptr.dtype.element_ty))


@triton.jit
def norm_channel_kernel(
    g_ptr,
    x_ptr,
    mean_ptr,
    var_ptr,
    w_ptr,
    gw_ptr,
    gb_ptr,
    out_ptr,
    N,
    S,
    count,
    eps,
    ROW,
    CHANNEL,
    BLOCK_N: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """Sums and gradients of a whole channel per program, in two passes over masked tiles."""
    channel = tl.program_id(0)
    mean = tl.load(mean_ptr + channel).to(tl.float32)
    inverse = 1.0 / tl.sqrt(tl.load(var_ptr + channel).to(tl.float32) + eps)
    totals = tl.zeros((BLOCK_N, BLOCK_S), dtype=tl.float32)
    products = tl.zeros((BLOCK_N, BLOCK_S), dtype=tl.float32)
    for top in range(0, N, BLOCK_N):
        rows = top + tl.arange(0, BLOCK_N)
        for left in range(0, S, BLOCK_S):
            cols = left + tl.arange(0, BLOCK_S)
            mask = (rows[:, None] < N) & (cols[None, :] < S)
            at = channel * CHANNEL + rows[:, None] * ROW + cols[None, :]
            g = tl.load(g_ptr + at, mask=mask, other=0.0).to(tl.float32)
            totals += g
            x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
            products += g * (x - mean) * inverse
    total = tl.sum(totals)
    product = tl.sum(products)
    weight = tl.load(w_ptr + channel).to(tl.float32)
    tl.store(gw_ptr + channel, product)
    tl.store(gb_ptr + channel, total)
    for top in range(0, N, BLOCK_N):
        rows = top + tl.arange(0, BLOCK_N)
        for left in range(0, S, BLOCK_S):
            cols = left + tl.arange(0, BLOCK_S)
            mask = (rows[:, None] < N) & (cols[None, :] < S)
            at = channel * CHANNEL + rows[:, None] * ROW + cols[None, :]
            g = tl.load(g_ptr + at, mask=mask, other=0.0).to(tl.float32)
            x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
            y = (g - (product * ((x - mean) * inverse) + total) / count) * inverse * weight
            tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def min_rows_kernel(
    x_ptr,
    out_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NARROW: tl.constexpr,
):
    """Minimum of rows, kept in float32 or in the input's dtype."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    if NARROW:
        least = tl.full((BLOCK_M, BLOCK_N), float("inf"), x_ptr.dtype.element_ty)
    else:
        least = tl.full((BLOCK_M, BLOCK_N), float("inf"), tl.float32)
    for step in range(tl.cdiv(N, BLOCK_N)):
        cols = step * BLOCK_N + tl.arange(0, BLOCK_N)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask, float("inf"))
        least = tl.minimum(least, x.to(least.dtype))
    tl.store(out_ptr + rows, tl.min(least, axis=1), rows < M)


@triton.jit
def min_middle_kernel(
    x_ptr,
    out_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    NARROW: tl.constexpr,
):
    """Minimum over the middle axis, reduced once at the end; a grid of batches and columns."""
    batch = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    if NARROW:
        least = tl.full((BLOCK_M, BLOCK_N), float("inf"), x_ptr.dtype.element_ty)
    else:
        least = tl.full((BLOCK_M, BLOCK_N), float("inf"), tl.float32)
    for step in range(tl.cdiv(M, BLOCK_M)):
        rows = step * BLOCK_M + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        x = tl.load(x_ptr + batch * M * N + rows[:, None] * N + cols[None, :], mask, float("inf"))
        least = tl.minimum(least, x.to(least.dtype))
    tl.store(out_ptr + batch * N + cols, tl.min(least, axis=0), cols < N)


@triton.jit(do_not_specialize=["bound", "H"])
def gate_cumsum_kernel(
    g_ptr, a_ptr, bias_ptr, starts_ptr, chunks_ptr, out_ptr, bound, H, D: tl.constexpr, BLOCK_T: tl.constexpr
):
    """Running sums of gates within a chunk of a sequence, one head per program."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    sequence = tl.load(chunks_ptr + chunk * 2).to(tl.int32)
    step = tl.load(chunks_ptr + chunk * 2 + 1).to(tl.int32)
    begin = tl.load(starts_ptr + sequence).to(tl.int32)
    end = tl.load(starts_ptr + sequence + 1).to(tl.int32)
    first = begin + step * BLOCK_T
    last = tl.minimum(first + BLOCK_T, end)
    rate = tl.load(a_ptr + head).to(tl.float32)
    lanes = tl.arange(0, D)
    bias = tl.load(bias_ptr + head * D + lanes).to(tl.float32)
    rows = first + tl.arange(0, BLOCK_T)
    mask = rows < last
    at = rows[:, None] * (H * D) + head * D + lanes[None, :]
    g = tl.load(g_ptr + at, mask=mask[:, None], other=0.0).to(tl.float32)
    gate = bound * tl.sigmoid((g + bias[None, :]) * tl.exp(rate))
    tl.store(out_ptr + at, tl.cumsum(gate, axis=0) * 1.4426950408889634, mask=mask[:, None])


@triton.jit(do_not_specialize=["B", "T", "CHUNKS", "BLOCKS"])
def conv_forward_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    linear_ptr,
    out_ptr,
    B,
    T,
    D: tl.constexpr,
    W: tl.constexpr,
    CHUNKS,
    BLOCKS,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Causal convolution of W taps along time, each tap a load of its own, then bias and SiLU; both are stored."""
    for task in range(tl.program_id(0), BLOCKS * CHUNKS, tl.num_programs(0)):
        block, chunk = task % BLOCKS, task // BLOCKS
        each = tl.cdiv(T, BLOCK_T)
        batch, step = chunk // each, chunk % each
        begin = tl.cast(batch, tl.int64) * T
        first = tl.cast(step, tl.int64) * BLOCK_T
        cols = block * BLOCK_D + tl.arange(0, BLOCK_D)
        inside = cols < D
        is_tail = (begin + first + BLOCK_T) > (tl.cast(B, tl.int64) * T)
        w = tl.load(tl.make_block_ptr(w_ptr, (W, D), (D, 1), (0, block * BLOCK_D), (W, BLOCK_D), (1, 0)))
        y = tl.zeros((BLOCK_T, BLOCK_D), dtype=tl.float32)
        for tap in tl.static_range(-W + 1, 1):
            times = first + tap + tl.arange(0, BLOCK_T)[:, None]
            mask = (times < T) & (cols[None, :] < D) & (times >= 0)
            x = tl.load(x_ptr + begin * D + times * D + cols[None, :], mask=mask, other=0.0).to(tl.float32)
            x *= tl.extract_slice(w, [tap + W - 1, 0], [1, BLOCK_D], [1, 1])
            y += x
        y += tl.load(bias_ptr + cols, mask=inside).to(tl.float32)
        if is_tail:
            rows = first + tl.arange(0, BLOCK_T)
            valid = ((rows >= 0) & (rows < T))[:, None] & inside[None, :]
            at = begin * D + rows[:, None] * D + cols[None, :]
            rounded = tl.cast(y, dtype=linear_ptr.dtype.element_ty, fp_downcast_rounding="rtne")
            tl.store(linear_ptr + at, rounded, mask=valid)
        else:
            target = tl.make_block_ptr(
                linear_ptr + begin * D,
                (T, D),
                (D, 1),
                (step * BLOCK_T, block * BLOCK_D),
                (BLOCK_T, BLOCK_D),
                (1, 0),
            )
            rounded = tl.cast(y, dtype=linear_ptr.dtype.element_ty, fp_downcast_rounding="rtne")
            tl.store(target, rounded, boundary_check=(0, 1))
        y = y * tl.sigmoid(y)
        if is_tail:
            rows = first + tl.arange(0, BLOCK_T)
            valid = ((rows >= 0) & (rows < T))[:, None] & inside[None, :]
            at = begin * D + rows[:, None] * D + cols[None, :]
            rounded = tl.cast(y, dtype=out_ptr.dtype.element_ty, fp_downcast_rounding="rtne")
            tl.store(out_ptr + at, rounded, mask=valid)
        else:
            target = tl.make_block_ptr(
                out_ptr + begin * D,
                (T, D),
                (D, 1),
                (step * BLOCK_T, block * BLOCK_D),
                (BLOCK_T, BLOCK_D),
                (1, 0),
            )
            rounded = tl.cast(y, dtype=out_ptr.dtype.element_ty, fp_downcast_rounding="rtne")
            tl.store(target, rounded, boundary_check=(0, 1))


@triton.jit(do_not_specialize=["B", "T", "BLOCKS", "CHUNKS", "EACH", "OFFSET"])
def conv_backward_kernel(
    x_ptr,
    linear_ptr,
    w_ptr,
    dy_ptr,
    dw_ptr,
    db_ptr,
    out_ptr,
    B,
    T,
    D: tl.constexpr,
    W: tl.constexpr,
    BLOCKS,
    CHUNKS,
    EACH,
    OFFSET,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Gradients of the same: one load with the rows that later taps need, cut into slices, and sums per chunk."""
    for task in range(tl.program_id(0), BLOCKS * CHUNKS, tl.num_programs(0)):
        block, chunk = task % BLOCKS, task // BLOCKS
        batch = chunk // EACH
        step = chunk % EACH + OFFSET
        number = tl.cast(batch, tl.int64) * tl.cdiv(T, BLOCK_T) + tl.cast(step, tl.int64)
        begin = tl.cast(batch, tl.int64) * T
        left = block * BLOCK_D
        cols = left + tl.arange(0, BLOCK_D)
        x = tl.load(
            tl.make_block_ptr(x_ptr + begin * D, (T, D), (D, 1), (step * BLOCK_T, left), (BLOCK_T, BLOCK_D), (1, 0)),
            boundary_check=(0, 1),
        )
        w = tl.load(
            tl.make_block_ptr(w_ptr, (W, D), (D, 1), (0, left), (W, BLOCK_D), (1, 0)),
            boundary_check=(0, 1),
            padding_option="zero",
        )
        dx = tl.zeros((BLOCK_T, BLOCK_D), dtype=tl.float32)
        db = tl.zeros((BLOCK_D,), dtype=tl.float32)
        dw = tl.zeros((W, BLOCK_D), dtype=tl.float32)
        dy = tl.load(
            tl.make_block_ptr(
                dy_ptr + begin * D, (T, D), (D, 1), (step * BLOCK_T, left), (BLOCK_T + W - 1, BLOCK_D), (1, 0)
            ),
            boundary_check=(0, 1),
        ).to(tl.float32)
        linear = tl.load(
            tl.make_block_ptr(
                linear_ptr + begin * D, (T, D), (D, 1), (step * BLOCK_T, left), (BLOCK_T + W - 1, BLOCK_D), (1, 0)
            ),
            boundary_check=(0, 1),
        ).to(tl.float32)
        part = tl.sigmoid(linear)
        dy = dy * part * (1 + linear * (1 - part))
        for tap in tl.static_range(0, W):
            cut = tl.extract_slice(dy, [tap, 0], [BLOCK_T, BLOCK_D], [1, 1])
            weighed = cut * tl.extract_slice(w, [W - tap - 1, 0], [1, BLOCK_D], [1, 1])
            row = tl.sum(cut * x, 0)
            dw = tl.insert_slice(dw, row[None, :], [W - tap - 1, 0], [1, BLOCK_D], [1, 1])
            if tap == 0:
                db += tl.sum(cut, 0)
            dx += weighed
        tl.store(
            tl.make_block_ptr(dw_ptr + number * W * D, (W, D), (D, 1), (0, left), (W, BLOCK_D), (1, 0)),
            dw.to(dw_ptr.dtype.element_ty),
        )
        rounded = tl.cast(db, dtype=db_ptr.dtype.element_ty, fp_downcast_rounding="rtne")
        tl.store(db_ptr + number * D + cols, rounded, mask=cols < D)
        tl.store(
            tl.make_block_ptr(out_ptr + begin * D, (T, D), (D, 1), (step * BLOCK_T, left), (BLOCK_T, BLOCK_D), (1, 0)),
            tl.cast(dx, dtype=out_ptr.dtype.element_ty, fp_downcast_rounding="rtne"),
            boundary_check=(0, 1),
        )
