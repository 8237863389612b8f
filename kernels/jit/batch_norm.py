"""Batch normalisation over [N, C, HW], training forward; see `tilewise.kernels.vector.batch_norm` for the spec.

A program works on one part of each of BLOCK_SIZE_C channels: PART_N images by PART_HW pixels. It walks the part in
tiles of [BLOCK_SIZE_N, BLOCK_SIZE_C, BLOCK_SIZE_HW]. If a channel is one part, a single launch does everything. If it
is cut into several, each program's sums pass through scratch to the next launch, which adds them up.

Sums are taken of `x - shift`, where shift is the mean of the channel's first pixels. Its distance from the channel's
mean is itself part of the channel's variance. What two passes subtract from the sum of squares at the end is therefore
at most the channel's size over BLOCK_SIZE_HW times the remainder, and the error at most that many roundings, wherever
the mean lies. Three passes subtract nothing: they sum squared distances from the mean.
"""

import triton
import triton.language as tl


@triton.jit
def _place(PARTS_N: tl.constexpr, PARTS_HW: tl.constexpr, BLOCK_SIZE_C: tl.constexpr):
    """Return this program's channels, and its part of them: the index in all, by images, and by pixels."""
    program = tl.program_id(0)
    channel = program // (PARTS_N * PARTS_HW) * BLOCK_SIZE_C + tl.arange(0, BLOCK_SIZE_C)
    part = program % (PARTS_N * PARTS_HW)
    return channel, part, part // PARTS_HW, part % PARTS_HW


@triton.jit
def _tile(channel, first_n, end_n, first_hw, end_hw, C, HW, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_HW: tl.constexpr):
    """Return a tile's offsets, and the mask of its elements that are inside the part."""
    image = first_n + tl.arange(0, BLOCK_SIZE_N)
    pixel = first_hw + tl.arange(0, BLOCK_SIZE_HW)
    mask = ((image < end_n)[:, None, None] & (channel < C)[None, :, None]) & (pixel < end_hw)[None, None, :]
    plane = image[:, None, None].to(tl.int64) * C + channel[None, :, None]  # 64 bits: there may be 2^31 elements
    return plane * HW + pixel[None, None, :], mask


@triton.jit
def _shift(x_ptr, channel, C, HW, BLOCK_SIZE_HW: tl.constexpr):
    """Return the mean of the first pixels of each channel's first image."""
    pixel = tl.arange(0, BLOCK_SIZE_HW)
    mask = (channel < C)[:, None] & (pixel < HW)[None, :]
    x = tl.load(x_ptr + channel[:, None].to(tl.int64) * HW + pixel[None, :], mask=mask, other=0.0).to(tl.float32)
    return tl.sum(x, axis=1) / tl.minimum(HW, BLOCK_SIZE_HW)


@triton.jit
def _sums(
    x_ptr,
    shift,
    rest,
    channel,
    part_n,
    part_hw,
    N,
    C,
    HW,
    KIND: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_C: tl.constexpr,
    BLOCK_SIZE_HW: tl.constexpr,
    PART_N: tl.constexpr,
    PART_HW: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_HW: tl.constexpr,
):
    """Return two sums over a part. KIND "both": of `x - shift` and of its square; "sum": only the first; "squares":
    only the second, of the square of `x - shift - rest`. EVEN_N, EVEN_HW: the last tile ends where the part does.

    The reduction is delayed: tiles accumulate over the loops and are reduced once. Images and pixels outside are
    masked by one select each, since on Ascend a single select by both masks takes many times the memory.
    """
    end_n = tl.minimum((part_n + 1) * PART_N, N)
    end_hw = tl.minimum((part_hw + 1) * PART_HW, HW)
    sums = tl.zeros([BLOCK_SIZE_N, BLOCK_SIZE_C, BLOCK_SIZE_HW], dtype=tl.float32)
    squares = tl.zeros([BLOCK_SIZE_N, BLOCK_SIZE_C, BLOCK_SIZE_HW], dtype=tl.float32)
    for first_n in range(part_n * PART_N, end_n, BLOCK_SIZE_N):
        for first_hw in range(part_hw * PART_HW, end_hw, BLOCK_SIZE_HW):
            at, mask = _tile(channel, first_n, end_n, first_hw, end_hw, C, HW, BLOCK_SIZE_N, BLOCK_SIZE_HW)
            away = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32) - shift[None, :, None]
            if KIND == "squares":
                away -= rest[None, :, None]
            if not EVEN_N:
                away = tl.where((first_n + tl.arange(0, BLOCK_SIZE_N) < end_n)[:, None, None], away, 0.0)
            if not EVEN_HW:
                away = tl.where((first_hw + tl.arange(0, BLOCK_SIZE_HW) < end_hw)[None, None, :], away, 0.0)
            if KIND != "squares":
                sums += away
            if KIND != "sum":
                squares += away * away
    total = shift if KIND == "squares" else tl.sum(tl.sum(sums, axis=2), axis=0)
    total_squares = shift if KIND == "sum" else tl.sum(tl.sum(squares, axis=2), axis=0)
    return total, total_squares


@triton.jit
def _apply(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    shift,
    rest,
    rstd,
    channel,
    part,
    part_n,
    part_hw,
    N,
    C,
    HW,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_HW: tl.constexpr,
    PART_N: tl.constexpr,
    PART_HW: tl.constexpr,
):
    """Store y of a part; the first part of a channel also stores mean and rstd."""
    end_n = tl.minimum((part_n + 1) * PART_N, N)
    end_hw = tl.minimum((part_hw + 1) * PART_HW, HW)
    first = (channel < C) & (part == 0)
    tl.store(mean_ptr + channel, shift + rest, mask=first)
    tl.store(rstd_ptr + channel, rstd, mask=first)
    scale = rstd * tl.load(w_ptr + channel, mask=channel < C, other=0.0).to(tl.float32)
    base = tl.load(b_ptr + channel, mask=channel < C, other=0.0).to(tl.float32) - rest * scale
    for first_n in range(part_n * PART_N, end_n, BLOCK_SIZE_N):
        for first_hw in range(part_hw * PART_HW, end_hw, BLOCK_SIZE_HW):
            at, mask = _tile(channel, first_n, end_n, first_hw, end_hw, C, HW, BLOCK_SIZE_N, BLOCK_SIZE_HW)
            x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
            y = (x - shift[None, :, None]) * scale[None, :, None] + base[None, :, None]
            tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def batch_norm_whole_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    N,
    C,
    HW,
    eps,
    VARIANT: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_C: tl.constexpr,
    BLOCK_SIZE_HW: tl.constexpr,
    PART_N: tl.constexpr,
    PART_HW: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_HW: tl.constexpr,
):
    """Compute the statistics and y of BLOCK_SIZE_C channels, each of a single part."""
    channel, part, part_n, part_hw = _place(1, 1, BLOCK_SIZE_C)
    count = N * 1.0 * HW
    shift = _shift(x_ptr, channel, C, HW, BLOCK_SIZE_HW)
    if VARIANT == "two_passes":
        total, squares = _sums(
            x_ptr,
            shift,
            shift,
            channel,
            part_n,
            part_hw,
            N,
            C,
            HW,
            "both",
            BLOCK_SIZE_N,
            BLOCK_SIZE_C,
            BLOCK_SIZE_HW,
            PART_N,
            PART_HW,
            EVEN_N,
            EVEN_HW,
        )
        rest = total / count
        variance = squares / count - rest * rest
    else:
        total, _ = _sums(
            x_ptr,
            shift,
            shift,
            channel,
            part_n,
            part_hw,
            N,
            C,
            HW,
            "sum",
            BLOCK_SIZE_N,
            BLOCK_SIZE_C,
            BLOCK_SIZE_HW,
            PART_N,
            PART_HW,
            EVEN_N,
            EVEN_HW,
        )
        rest = total / count
        _, squares = _sums(
            x_ptr,
            shift,
            rest,
            channel,
            part_n,
            part_hw,
            N,
            C,
            HW,
            "squares",
            BLOCK_SIZE_N,
            BLOCK_SIZE_C,
            BLOCK_SIZE_HW,
            PART_N,
            PART_HW,
            EVEN_N,
            EVEN_HW,
        )
        variance = squares / count
    rstd = tl.rsqrt(variance + eps)
    _apply(
        x_ptr,
        w_ptr,
        b_ptr,
        y_ptr,
        mean_ptr,
        rstd_ptr,
        shift,
        rest,
        rstd,
        channel,
        part,
        part_n,
        part_hw,
        N,
        C,
        HW,
        BLOCK_SIZE_N,
        BLOCK_SIZE_HW,
        PART_N,
        PART_HW,
    )


@triton.jit
def batch_norm_sums_kernel(
    x_ptr,
    shift_ptr,
    sums_ptr,
    squares_ptr,
    N,
    C,
    HW,
    KIND: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_C: tl.constexpr,
    BLOCK_SIZE_HW: tl.constexpr,
    PART_N: tl.constexpr,
    PART_HW: tl.constexpr,
    PARTS_N: tl.constexpr,
    PARTS_HW: tl.constexpr,
    PARTS_BLOCK: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_HW: tl.constexpr,
):
    """Store a part's sums to scratch of shape [C, parts]; KIND as in `_sums`."""
    channel, part, part_n, part_hw = _place(PARTS_N, PARTS_HW, BLOCK_SIZE_C)
    if KIND == "squares":
        shift = tl.load(shift_ptr + channel, mask=channel < C, other=0.0)
        rest = _total(sums_ptr, channel, C, PARTS_N * PARTS_HW, PARTS_BLOCK) / (N * 1.0 * HW)
    else:
        shift = _shift(x_ptr, channel, C, HW, BLOCK_SIZE_HW)
        rest = shift
        tl.store(shift_ptr + channel, shift, mask=(channel < C) & (part == 0))
    total, squares = _sums(
        x_ptr,
        shift,
        rest,
        channel,
        part_n,
        part_hw,
        N,
        C,
        HW,
        KIND,
        BLOCK_SIZE_N,
        BLOCK_SIZE_C,
        BLOCK_SIZE_HW,
        PART_N,
        PART_HW,
        EVEN_N,
        EVEN_HW,
    )
    at = channel * (PARTS_N * PARTS_HW) + part
    if KIND != "squares":
        tl.store(sums_ptr + at, total, mask=channel < C)
    if KIND != "sum":
        tl.store(squares_ptr + at, squares, mask=channel < C)


@triton.jit
def _total(parts_ptr, channel, C, PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr):
    """Return the sum of each channel's PARTS values; PARTS_BLOCK >= PARTS."""
    part = tl.arange(0, PARTS_BLOCK)
    mask = (channel < C)[:, None] & (part < PARTS)[None, :]
    return tl.sum(tl.load(parts_ptr + channel[:, None] * PARTS + part[None, :], mask=mask, other=0.0), axis=1)


@triton.jit
def batch_norm_apply_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    shift_ptr,
    sums_ptr,
    squares_ptr,
    N,
    C,
    HW,
    eps,
    VARIANT: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_C: tl.constexpr,
    BLOCK_SIZE_HW: tl.constexpr,
    PART_N: tl.constexpr,
    PART_HW: tl.constexpr,
    PARTS_N: tl.constexpr,
    PARTS_HW: tl.constexpr,
    PARTS_BLOCK: tl.constexpr,
):
    """Store y of a part, with the statistics from all parts' sums."""
    channel, part, part_n, part_hw = _place(PARTS_N, PARTS_HW, BLOCK_SIZE_C)
    count = N * 1.0 * HW
    shift = tl.load(shift_ptr + channel, mask=channel < C, other=0.0)
    rest = _total(sums_ptr, channel, C, PARTS_N * PARTS_HW, PARTS_BLOCK) / count
    variance = _total(squares_ptr, channel, C, PARTS_N * PARTS_HW, PARTS_BLOCK) / count
    if VARIANT == "two_passes":
        variance -= rest * rest
    rstd = tl.rsqrt(variance + eps)
    _apply(
        x_ptr,
        w_ptr,
        b_ptr,
        y_ptr,
        mean_ptr,
        rstd_ptr,
        shift,
        rest,
        rstd,
        channel,
        part,
        part_n,
        part_hw,
        N,
        C,
        HW,
        BLOCK_SIZE_N,
        BLOCK_SIZE_HW,
        PART_N,
        PART_HW,
    )
