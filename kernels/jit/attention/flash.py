"""Attention with a running softmax; see `tilewise.kernels.attention.flash` for the spec.

A program takes BLOCK_SIZE_M queries of one head and walks the keys from the last one they see to the first,
BLOCK_SIZE_N at a time, so that only the first blocks need masks. It keeps each row's maximum and its sum of
exponentials relative to it, scales both down whenever the maximum rises, and works in powers of two, with log2(e)
folded into the scale.

With `OVERLAPPED`, a step multiplies the weights of the block *before* by their values. That product needs nothing of
this step, so tensor cores compute it while the other units compute this step's weights.

With `CAUSAL`, query i of Q sees the keys up to i + K - Q, so the last query sees all. One that sees none gets zeros.
"""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""Start of a maximum: finite, since -inf - -inf would turn a row that sees no key into NaN."""

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _load(
    source,
    start,
    K,
    stride,
    D: tl.constexpr,
    FITS_N: tl.constexpr,
    OVERLAPPED: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_D: tl.constexpr,
):
    """Load keys or values from `start` on as [BLOCK_SIZE_N, BLOCK_SIZE_D], zeros outside the sequence and the head."""
    if OVERLAPPED:
        tile = source.load([start, 0])
    else:
        rows, cols = tl.arange(0, BLOCK_SIZE_N), tl.arange(0, BLOCK_SIZE_D)
        at = source + start * stride.to(tl.int64) + rows[:, None] * stride + cols[None, :]
        if FITS_N and D == BLOCK_SIZE_D:
            tile = tl.load(at)
        elif FITS_N:
            tile = tl.load(at, mask=(cols < D)[None, :], other=0.0)
        else:
            tile = tl.load(at, mask=(rows < K - start)[:, None] & (cols < D)[None, :], other=0.0)
    return tile


@triton.jit
def _seen(scores, start, rows, K, offset, CAUSAL: tl.constexpr, BLOCK_SIZE_N: tl.constexpr):
    """Return the scores of the keys from `start` on, -inf for those that a row does not see."""
    keys = start + tl.arange(0, BLOCK_SIZE_N)
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
def _after_product(bits):
    """Return `bits` after the product in flight, whose operand of the step before is in the registers they take.

    Triton waits for a product before the first use of its sum. That is in the next step, too late for the operand.
    """
    return tl.inline_asm_elementwise(
        "wgmma.wait_group.sync.aligned 0; mov.b32 $0, $4; mov.b32 $1, $5; mov.b32 $2, $6; mov.b32 $3, $7;",
        "=r,=r,=r,=r,r,r,r,r",
        [bits],
        dtype=tl.int16,
        is_pure=False,
        pack=8,
    )


@triton.jit
def _attend(
    q,
    k_source,
    v_source,
    row,
    Q,
    K,
    stride,
    factor,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    FITS_N: tl.constexpr,
    OVERLAPPED: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_D: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Return the weighted values [BLOCK_SIZE_M, BLOCK_SIZE_D] in float32 of the queries q, which begin at `row`."""
    rows = row + tl.arange(0, BLOCK_SIZE_M)
    offset = K - Q
    seen_by_all = tl.minimum(K, row + 1 + offset) if CAUSAL else K
    seen_by_any = tl.minimum(K, row + BLOCK_SIZE_M + offset) if CAUSAL else K
    blocks = tl.maximum(tl.cdiv(seen_by_any, BLOCK_SIZE_N), 1)
    peak = tl.full([BLOCK_SIZE_M], LOWEST, dtype=tl.float32)
    total = tl.zeros([BLOCK_SIZE_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_SIZE_M, BLOCK_SIZE_D], dtype=tl.float32)
    if OVERLAPPED:
        blocks -= 1
        start = blocks * BLOCK_SIZE_N
        k = _load(k_source, start, K, stride, D, FITS_N, OVERLAPPED, BLOCK_SIZE_N, BLOCK_SIZE_D)
        scores = tl.dot(q, tl.trans(k))
        if CAUSAL or not FITS_N:
            scores = _seen(scores, start, rows, K, offset, CAUSAL, BLOCK_SIZE_N)
        weights, peak, total, shrink = _weights(scores, peak, total, factor)
        # A loop's argument that a product takes is copied to shared memory, but one that is converted first is not.
        bits = weights.to(q.dtype).to(tl.int16, bitcast=True)
    for trip in tl.range(0, blocks, num_stages=NUM_STAGES):
        start = (blocks - 1 - trip) * BLOCK_SIZE_N
        k = _load(k_source, start, K, stride, D, FITS_N, OVERLAPPED, BLOCK_SIZE_N, BLOCK_SIZE_D)
        scores = tl.dot(q, tl.trans(k))
        if CAUSAL or not (FITS_N or OVERLAPPED):
            if start + BLOCK_SIZE_N > seen_by_all:
                scores = _seen(scores, start, rows, K, offset, CAUSAL, BLOCK_SIZE_N)
        if OVERLAPPED:
            before = start + BLOCK_SIZE_N
            v = _load(v_source, before, K, stride, D, FITS_N, OVERLAPPED, BLOCK_SIZE_N, BLOCK_SIZE_D)
            acc = tl.dot(bits.to(q.dtype, bitcast=True), v, acc * shrink[:, None])
            weights, peak, total, shrink = _weights(scores, peak, total, factor)
            bits = _after_product(weights.to(q.dtype).to(tl.int16, bitcast=True))
        else:
            weights, peak, total, shrink = _weights(scores, peak, total, factor)
            v = _load(v_source, start, K, stride, D, FITS_N, OVERLAPPED, BLOCK_SIZE_N, BLOCK_SIZE_D)
            acc = tl.dot(weights.to(q.dtype), v, acc * shrink[:, None])
    if OVERLAPPED:
        v = _load(v_source, 0, K, stride, D, FITS_N, OVERLAPPED, BLOCK_SIZE_N, BLOCK_SIZE_D)
        acc = tl.dot(bits.to(q.dtype, bitcast=True), v, acc * shrink[:, None])
    return acc * (1.0 / tl.where(total > 0, total, 1.0))[:, None]


@triton.jit
def _block(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    row,
    Q,
    K,
    stride_q,
    stride_k,
    factor,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    FITS_N: tl.constexpr,
    OVERLAPPED: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_D: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Compute the queries from `row` on of one head of one sequence, where all four pointers point."""
    rows, cols = row + tl.arange(0, BLOCK_SIZE_M), tl.arange(0, BLOCK_SIZE_D)
    at = rows[:, None].to(tl.int64) * stride_q + cols[None, :]
    mask = (rows < Q)[:, None] & (cols < D)[None, :]
    q = tl.load(q_ptr + at, mask=mask, other=0.0)
    if OVERLAPPED:
        k_source = tl.make_tensor_descriptor(k_ptr, [K, D], [stride_k, 1], [BLOCK_SIZE_N, BLOCK_SIZE_D])
        v_source = tl.make_tensor_descriptor(v_ptr, [K, D], [stride_k, 1], [BLOCK_SIZE_N, BLOCK_SIZE_D])
    else:
        k_source, v_source = k_ptr, v_ptr
    acc = _attend(
        q,
        k_source,
        v_source,
        row,
        Q,
        K,
        stride_k,
        factor,
        D,
        CAUSAL,
        FITS_N,
        OVERLAPPED,
        BLOCK_SIZE_M,
        BLOCK_SIZE_N,
        BLOCK_SIZE_D,
        NUM_STAGES,
    )
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def flash_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    q_starts_ptr,
    k_starts_ptr,
    Q,
    K,
    H,
    HKV,
    SCALE,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    RAGGED: tl.constexpr,
    FITS_N: tl.constexpr,
    OVERLAPPED: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_D: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Attention of queries [B * Q, H, D] over keys and values [B * K, HKV, D], whose heads serve H / HKV of q's each.

    Sequence b has the tokens from b * Q on; with `RAGGED` those from q_starts[b] to q_starts[b + 1], Q at most, and the
    same for keys. FITS_N: K is a multiple of BLOCK_SIZE_N, and not RAGGED.
    """
    blocks = tl.cdiv(Q, BLOCK_SIZE_M)
    program = tl.program_id(0)
    if CAUSAL:  # the longest first, those of all heads together
        head, line = program % H, program // H
        block, batch = blocks - 1 - line % blocks, line // blocks
    else:
        block, line = program % blocks, program // blocks
        head, batch = line % H, line // H
    if RAGGED:
        q_start = tl.load(q_starts_ptr + batch).to(tl.int64)
        k_start = tl.load(k_starts_ptr + batch).to(tl.int64)
        q_size = (tl.load(q_starts_ptr + batch + 1) - q_start).to(tl.int32)
        k_size = (tl.load(k_starts_ptr + batch + 1) - k_start).to(tl.int32)
    else:
        q_start, k_start = batch.to(tl.int64) * Q, batch.to(tl.int64) * K
        q_size, k_size = Q, K
    q_at, k_at = (q_start * H + head) * D, (k_start * HKV + head // (H // HKV)) * D
    row = block * BLOCK_SIZE_M
    if row < q_size:
        _block(
            q_ptr + q_at,
            k_ptr + k_at,
            v_ptr + k_at,
            out_ptr + q_at,
            row,
            q_size,
            k_size,
            H * D,
            HKV * D,
            SCALE * LOG2_E,
            D,
            CAUSAL,
            FITS_N,
            OVERLAPPED,
            BLOCK_SIZE_M,
            BLOCK_SIZE_N,
            BLOCK_SIZE_D,
            NUM_STAGES,
        )
