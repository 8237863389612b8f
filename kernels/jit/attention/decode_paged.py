"""Attention of one query per sequence for Ascend; see `tilewise.kernels.attention.decode` for the spec.

Each trip takes keys of one page, BLOCK_N at a time, so that they are one transfer to a cube core's L1: a gather of
several pages would be copied element by element. A second launch merges the parts.
"""

import triton
import triton.language as tl

from tilewise.kernels.jit.attention.decode import LOG2_E, LOWEST


@triton.jit
def decode_attention_paged_kernel(
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
):
    """Attention of [B, H, D] queries over keys and values in pages [.., PAGE, HKV, D], which table [B, PAGES] names.

    Writes each part's result to parts [B, SPLITS, H, D] and the logarithm of its sum to weights [B, SPLITS, H], in
    float32; with SPLITS = 1, which WHOLE says, the result to out [B, H, D].
    """
    kv_head, line = tl.program_id(0) % HKV, tl.program_id(0) // HKV
    part, batch = line % SPLITS, line // SPLITS
    length = tl.load(lengths_ptr + batch)
    of_page: tl.constexpr = (PAGE + BLOCK_N - 1) // BLOCK_N
    trips = tl.cdiv(length, PAGE) * of_page
    share = tl.cdiv(trips, SPLITS)

    group = H // HKV
    members, cols = tl.arange(0, BLOCK_H), tl.arange(0, BLOCK_D)
    inside = (members < group)[:, None] & (cols < D)[None, :]
    of_heads = members[:, None] * D + cols[None, :]
    first_head = batch * H + kv_head * group
    q = tl.load(q_ptr + first_head * D + of_heads, mask=inside, other=0.0)

    peak = tl.full([BLOCK_H], LOWEST, dtype=tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_D], dtype=tl.float32)
    for trip in range(part * share, tl.minimum(part * share + share, trips)):
        page = tl.load(table_ptr + batch * PAGES + trip // of_page)
        within = trip % of_page * BLOCK_N + tl.arange(0, BLOCK_N)
        at = (page.to(tl.int64) * PAGE * HKV + kv_head) * D + within[:, None] * (HKV * D) + cols[None, :]
        mask = (within < PAGE)[:, None] & (cols < D)[None, :]
        k = tl.load(k_ptr + at, mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * (SCALE * LOG2_E)
        seen = tl.minimum(PAGE, length - trip // of_page * PAGE)
        scores = tl.where((within < seen)[None, :], scores, float("-inf"))
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
        tl.store(out_ptr + first_head * D + of_heads, acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        first_line = line * H + kv_head * group
        tl.store(parts_ptr + first_line * D + of_heads, acc, mask=inside)
        tl.store(weights_ptr + first_line + members, peak + tl.log2(some), mask=members < group)


@triton.jit
def merge_pages_kernel(
    parts_ptr,
    weights_ptr,
    out_ptr,
    H,
    HKV,
    SPLITS,
    D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Merge the parts of the heads that share keys, by the logarithms of their sums."""
    group = H // HKV
    batch, first_head = tl.program_id(0) // HKV, tl.program_id(0) % HKV * group
    members, cols = tl.arange(0, BLOCK_H), tl.arange(0, BLOCK_D)
    inside = (members < group)[:, None] & (cols < D)[None, :]
    of_heads = members[:, None] * D + cols[None, :]
    highest = tl.full([BLOCK_H], LOWEST, dtype=tl.float32)
    for part in range(SPLITS):
        line = (batch * SPLITS + part) * H + first_head
        highest = tl.maximum(highest, tl.load(weights_ptr + line + members, mask=members < group, other=LOWEST))
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_D], dtype=tl.float32)
    for part in range(SPLITS):
        line = (batch * SPLITS + part) * H + first_head
        weights = tl.exp2(tl.load(weights_ptr + line + members, mask=members < group, other=LOWEST) - highest)
        total += weights
        acc += tl.load(parts_ptr + line * D + of_heads, mask=inside, other=0.0) * weights[:, None]
    out = acc / total[:, None]
    at = out_ptr + (batch * H + first_head) * D + of_heads
    tl.store(at, out.to(out_ptr.dtype.element_ty), mask=inside)
