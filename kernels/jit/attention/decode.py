"""Attention of one query per sequence over pages of keys; see `tilewise.kernels.attention.decode` for the spec.

A program takes the heads that share one head of keys, and one of `SPLITS` equal parts of the sequence. The heads fill
a tile of at least 16 rows, as tensor cores need. A second launch merges the parts, always in the same order; with one
part the first launch writes the result.

Everything is in powers of two, with log2(e) folded into the scale. A part without keys weighs nothing.
"""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""Start of a maximum: finite, since -inf - -inf would be NaN."""

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _pages(table_ptr, start, last, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the pages of the keys from `start` on, read a step ahead, so that loads of keys need not wait for them."""
    keys = start + tl.arange(0, BLOCK_N)
    return tl.load(table_ptr + keys // PAGE, mask=keys < last, other=0)


@triton.jit
def decode_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lengths_ptr,
    out_ptr,
    parts_ptr,
    weights_ptr,
    H,
    HKV,
    PAGES,
    SCALE,
    SPLITS,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Attention of [B, H, D] queries over keys and values in pages [.., PAGE, HKV, D], which table [B, PAGES] names.

    Writes each part's result to parts [B, H, SPLITS, D] and the logarithm of its sum to weights [B, H, SPLITS], in
    float32; with SPLITS = 1, which WHOLE says, the result to out [B, H, D].
    """
    kv_head, line = tl.program_id(0) % HKV, tl.program_id(0) // HKV
    part, batch = line % SPLITS, (line // SPLITS).to(tl.int64)
    length = tl.load(lengths_ptr + batch)
    share = tl.cdiv(tl.cdiv(length, SPLITS), BLOCK_N) * BLOCK_N
    first = part * share
    last = tl.minimum(first + share, length)

    group = H // HKV
    members, cols = tl.arange(0, BLOCK_H), tl.arange(0, BLOCK_D)
    heads = kv_head * group + members
    inside = (members < group)[:, None] & (cols < D)[None, :]
    q = tl.load(q_ptr + (batch * H + heads[:, None]) * D + cols[None, :], mask=inside, other=0.0)

    peak = tl.full([BLOCK_H], LOWEST, dtype=tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_D], dtype=tl.float32)
    table_ptr += batch * PAGES
    pages = _pages(table_ptr, first, last, PAGE, BLOCK_N)
    for start in tl.range(first, last, BLOCK_N, num_stages=NUM_STAGES):
        keys = start + tl.arange(0, BLOCK_N)
        seen = keys < last
        at = ((pages.to(tl.int64) * PAGE + keys % PAGE) * HKV + kv_head)[:, None] * D + cols[None, :]
        pages = _pages(table_ptr, start + BLOCK_N, last, PAGE, BLOCK_N)
        mask = seen[:, None] & (cols < D)[None, :]
        k = tl.load(k_ptr + at, mask=mask, other=0.0)
        scores = tl.where(seen[None, :], tl.dot(q, tl.trans(k)) * (SCALE * LOG2_E), float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(weights, axis=1)
        v = tl.load(v_ptr + at, mask=mask, other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        peak = higher

    some = tl.where(total > 0, total, 1.0)
    acc = acc / some[:, None]
    if WHOLE:
        at = (batch * H + heads[:, None]) * D + cols[None, :]
        tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        lines = (batch * H + heads) * SPLITS + part
        tl.store(parts_ptr + lines[:, None] * D + cols[None, :], acc, mask=inside)
        tl.store(weights_ptr + lines, peak + tl.log2(some), mask=members < group)


@triton.jit
def merge_parts_kernel(
    parts_ptr,
    weights_ptr,
    out_ptr,
    SPLITS,
    D: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Merge the parts of one head of one sequence, BLOCK_S >= SPLITS of them, by the logarithms of their sums."""
    line = tl.program_id(0).to(tl.int64)
    splits, cols = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    weights = tl.load(weights_ptr + line * SPLITS + splits, mask=splits < SPLITS, other=LOWEST)
    weights = tl.exp2(weights - tl.max(weights, axis=0))
    at = (line * SPLITS + splits)[:, None] * D + cols[None, :]
    parts = tl.load(parts_ptr + at, mask=(splits < SPLITS)[:, None] & (cols < D)[None, :], other=0.0)
    out = tl.sum(parts * weights[:, None], axis=0) / tl.sum(weights, axis=0)
    tl.store(out_ptr + line * D + cols, out.to(out_ptr.dtype.element_ty), mask=cols < D)
