"""Attention with a running softmax; see `tilewise.kernels.attention.flash` for the spec.

A program takes BLOCK_M queries of one head and walks the keys from the last one they see to the first, BLOCK_N at a
time, so that only the first blocks need masks. It keeps each row's maximum and its sum of exponentials relative to it,
scales both down whenever the maximum rises, and works in powers of two, with log2(e) folded into the scale.

With `CAUSAL`, query i of Q sees the keys up to i + K - Q, so the last query sees all. One that sees none gets zeros.
"""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""Start of a maximum: finite, since -inf - -inf would turn a row that sees no key into NaN."""

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _load(
    pointer, start, K, stride, D: tl.constexpr, FITS_N: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Load keys or values from `start` on as [BLOCK_N, BLOCK_D], zeros outside the sequence and the head."""
    rows, cols = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    at = pointer + start.to(tl.int64) * stride + rows[:, None] * stride + cols[None, :]
    if FITS_N and D == BLOCK_D:
        tile = tl.load(at)
    elif FITS_N:
        tile = tl.load(at, mask=(cols < D)[None, :], other=0.0)
    else:
        tile = tl.load(at, mask=(rows < K - start)[:, None] & (cols < D)[None, :], other=0.0)
    return tile


@triton.jit
def _seen(scores, start, rows, K, offset, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the scores of the keys from `start` on, -inf for those that a row does not see."""
    keys = start + tl.arange(0, BLOCK_N)
    seen = (keys < K)[None, :]
    if CAUSAL:
        seen = seen & (keys[None, :] <= rows[:, None] + offset)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _weights(scores, peak, total, factor):
    """Return a block's weights relative to the new maximum, that maximum, the new sum, and the old sum's factor."""
    higher = tl.maximum(peak, tl.max(scores, axis=1) * factor)
    weights = tl.exp2(scores * factor - higher[:, None])
    shrink = tl.exp2(peak - higher)
    return weights, higher, total * shrink + tl.sum(weights, axis=1), shrink


@triton.jit
def _attend(
    q,
    k_ptr,
    v_ptr,
    row,
    Q,
    K,
    stride,
    factor,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    FITS_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Return the weighted values [BLOCK_M, BLOCK_D] in float32 of the queries q, which begin at `row`."""
    rows = row + tl.arange(0, BLOCK_M)
    offset = K - Q
    seen_by_all = tl.minimum(K, row + 1 + offset) if CAUSAL else K
    seen_by_any = tl.minimum(K, row + BLOCK_M + offset) if CAUSAL else K
    blocks = tl.maximum(tl.cdiv(seen_by_any, BLOCK_N), 1)
    peak = tl.full([BLOCK_M], LOWEST, dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    for trip in tl.range(0, blocks, num_stages=NUM_STAGES):
        start = (blocks - 1 - trip) * BLOCK_N
        k = _load(k_ptr, start, K, stride, D, FITS_N, BLOCK_N, BLOCK_D)
        scores = tl.dot(q, tl.trans(k))
        if CAUSAL or not FITS_N:
            if start + BLOCK_N > seen_by_all:
                scores = _seen(scores, start, rows, K, offset, CAUSAL, BLOCK_N)
        weights, peak, total, shrink = _weights(scores, peak, total, factor)
        v = _load(v_ptr, start, K, stride, D, FITS_N, BLOCK_N, BLOCK_D)
        acc = tl.dot(weights.to(q.dtype), v, acc * shrink[:, None])
    return acc * (1.0 / tl.where(total > 0, total, 1.0))[:, None]


@triton.jit
def _sequence_of(block, starts_ptr, B, BLOCK_M: tl.constexpr):
    """Return the packed sequence to which a block of queries belongs.

    Sequence b has the blocks from starts[b] // BLOCK_M + b on: as many as its tokens need, or one more.
    """
    low = block * 0
    high = low + B
    while high - low > 1:
        middle = (low + high) // 2
        begun = tl.load(starts_ptr + middle) // BLOCK_M + middle <= block
        low = tl.where(begun, middle, low)
        high = tl.where(begun, high, middle)
    return low


@triton.jit
def flash_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    q_starts_ptr,
    k_starts_ptr,
    out_ptr,
    B,
    H,
    HKV,
    Q,
    K,
    SCALE,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    PACKED: tl.constexpr,
    FITS_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Attention of queries [B * Q, H, D] over keys and values [B * K, HKV, D], whose heads serve H / HKV of q's each.

    Sequence b has the tokens from b * Q on; with `PACKED` those from q_starts[b] to q_starts[b + 1], and the same for
    keys. FITS_N: K is a multiple of BLOCK_N, and not PACKED.
    """
    program = tl.program_id(0)
    blocks = B * Q // BLOCK_M + B if PACKED else tl.cdiv(Q, BLOCK_M)
    if CAUSAL:  # the longest first, those of all heads together
        head, line = program % H, program // H
        block, batch = blocks - 1 - line % blocks, line // blocks
    else:
        block, line = program % blocks, program // blocks
        head, batch = line % H, line // H
    if PACKED:
        batch = _sequence_of(block, q_starts_ptr, B, BLOCK_M)
        q_start, k_start = tl.load(q_starts_ptr + batch), tl.load(k_starts_ptr + batch)
        q_size = tl.load(q_starts_ptr + batch + 1) - q_start
        k_size = tl.load(k_starts_ptr + batch + 1) - k_start
        block -= q_start // BLOCK_M + batch
        q_start, k_start = q_start.to(tl.int64), k_start.to(tl.int64)
    else:
        q_start, k_start = batch.to(tl.int64) * Q, batch.to(tl.int64) * K
        q_size, k_size = Q, K
    row = block * BLOCK_M
    if row < q_size:
        rows, cols = row + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
        at = (q_start * H + head) * D + rows[:, None].to(tl.int64) * (H * D) + cols[None, :]
        mask = (rows < q_size)[:, None] & (cols < D)[None, :]
        k_at = (k_start * HKV + head // (H // HKV)) * D
        q = tl.load(q_ptr + at, mask=mask, other=0.0)
        acc = _attend(
            q,
            k_ptr + k_at,
            v_ptr + k_at,
            row,
            q_size,
            k_size,
            HKV * D,
            SCALE * LOG2_E,
            D,
            CAUSAL,
            FITS_N,
            BLOCK_M,
            BLOCK_N,
            BLOCK_D,
            NUM_STAGES,
        )
        tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=mask)
