"""Attention with a running softmax for Ascend; see `tilewise.kernels.attention.flash` for the spec.

Every load is masked along both axes, so that it becomes one transfer to a cube core's L1, and scores of keys that a row
does not see are replaced in every trip: Ascend's compiler does not take a branch between two products. Weights are
powers of e: a vector core has no others, so that powers of two would cost it one more multiplication of every score.
"""

import triton
import triton.language as tl

from tilewise.kernels.jit.attention.flash import LOWEST


@triton.jit
def _weights(scores, peak, total, scale):
    """Return a block's weights relative to the new maximum, that maximum, the new sum, and the old sum's factor."""
    higher = tl.maximum(peak, tl.max(scores, axis=1) * scale)
    weights = tl.exp(scores * scale - higher[:, None])
    shrink = tl.exp(peak - higher)
    return weights, higher, total * shrink + tl.sum(weights, axis=1), shrink


@triton.jit
def flash_attention_masked_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    H,
    HKV,
    Q,
    K,
    SCALE,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    FITS_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Attention of queries [B, Q, H, D] over keys and values [B, K, HKV, D]. FITS_N: K is a multiple of BLOCK_N."""
    blocks = tl.cdiv(Q, BLOCK_M)
    block, line = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    head, batch = line % H, line // H
    rows, cols = block * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    at = (batch * Q * H + head) * D + rows[:, None] * (H * D) + cols[None, :]
    mask = (rows < Q)[:, None] & (cols < D)[None, :]
    kv_at = (batch * K * HKV + head // (H // HKV)) * D
    q = tl.load(q_ptr + at, mask=mask, other=0.0)
    peak = tl.full([BLOCK_M], LOWEST, dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    seen_by_any = tl.minimum(K, (block + 1) * BLOCK_M + K - Q) if CAUSAL else K
    for start in range(0, seen_by_any, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        inside = (keys < K)[:, None] & (cols < D)[None, :]
        kv = kv_at + keys[:, None] * (HKV * D) + cols[None, :]
        scores = tl.dot(q, tl.trans(tl.load(k_ptr + kv, mask=inside, other=0.0)))
        if CAUSAL:
            scores = tl.where(keys[None, :] <= rows[:, None] + (K - Q), scores, float("-inf"))
        elif not FITS_N:
            scores = tl.where((keys < K)[None, :], scores, float("-inf"))
        weights, peak, total, shrink = _weights(scores, peak, total, SCALE)
        acc = acc * shrink[:, None]
        acc = tl.dot(weights.to(q.dtype), tl.load(v_ptr + kv, mask=inside, other=0.0), acc)
    acc = acc * (1.0 / tl.where(total > 0, total, 1.0))[:, None]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=mask)
