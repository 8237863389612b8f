"""Rotary position embedding; see `tilewise.kernels.vector.rotary` for the spec."""

import triton
import triton.language as tl


@triton.jit
def rotary_kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    M,
    H,
    HALF,
    FITS_M: tl.constexpr,
    FITS_H: tl.constexpr,
    FITS_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_H: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Rotate each pair `(x[m, h, n], x[m, h, HALF + n])` by the angle whose cosine and sine are in row m of the tables.

    A program takes BLOCK_SIZE_M tokens, SUB_BLOCK_SIZE_M at a time, of BLOCK_SIZE_H heads and BLOCK_SIZE_N pairs.
    Blocks that would cross an end are moved back (`FITS_*`), and the overlap is computed twice, to the same values.
    """
    parts_n, parts_h = (HALF - 1) // BLOCK_SIZE_N + 1, (H - 1) // BLOCK_SIZE_H + 1
    program = tl.program_id(0)
    first_n = program % parts_n * BLOCK_SIZE_N
    first_h = program // parts_n % parts_h * BLOCK_SIZE_H
    first_m = (program // (parts_n * parts_h)).to(tl.int64) * BLOCK_SIZE_M  # 64 bits: there may be 2^31 elements
    if FITS_N:
        first_n = tl.minimum(first_n, HALF - BLOCK_SIZE_N)
    if FITS_H:
        first_h = tl.minimum(first_h, H - BLOCK_SIZE_H)
    fits: tl.constexpr = FITS_M and (FITS_H and FITS_N)
    pair = first_n + tl.arange(0, BLOCK_SIZE_N)
    head = first_h + tl.arange(0, BLOCK_SIZE_H)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1, num_stages=NUM_STAGES):
        start = first_m + trip * SUB_BLOCK_SIZE_M
        if FITS_M:
            start = tl.minimum(start, M - SUB_BLOCK_SIZE_M)
        token = start + tl.arange(0, SUB_BLOCK_SIZE_M)
        table = token[:, None] * HALF + pair[None, :]
        row = (token[:, None] * H + head[None, :]) * (2 * HALF)
        at = row[:, :, None] + pair[None, None, :]
        if fits:
            cos, sin = tl.load(cos_ptr + table), tl.load(sin_ptr + table)
            low, high = tl.load(x_ptr + at), tl.load(x_ptr + HALF + at)
        else:
            known = (token < M)[:, None] & (pair < HALF)[None, :]
            mask = (token < M)[:, None, None] & (head < H)[None, :, None] & (pair < HALF)[None, None, :]
            cos, sin = tl.load(cos_ptr + table, mask=known, other=0.0), tl.load(sin_ptr + table, mask=known, other=0.0)
            low, high = tl.load(x_ptr + at, mask=mask, other=0.0), tl.load(x_ptr + HALF + at, mask=mask, other=0.0)
        cos, sin = cos.to(tl.float32)[:, None, :], sin.to(tl.float32)[:, None, :]
        low, high = low.to(tl.float32), high.to(tl.float32)
        new_low, new_high = low * cos - high * sin, high * cos + low * sin
        if fits:
            tl.store(out_ptr + at, new_low)
            tl.store(out_ptr + HALF + at, new_high)
        else:
            tl.store(out_ptr + at, new_low, mask=mask)
            tl.store(out_ptr + HALF + at, new_high, mask=mask)
