"""Gating of a mixture of experts; see `tilewise.kernels.vector.topk_gating` for the spec."""

import triton
import triton.language as tl


@triton.jit
def topk_gating_kernel(
    x_ptr,
    weight_ptr,
    id_ptr,
    M,
    E,
    TOPK,
    FITS_M: tl.constexpr,
    FITS_E: tl.constexpr,
    RENORMALISE: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_E: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Store the TOPK largest of softmax(x[m]) over E experts, in order, and their experts. RENORMALISE: divided by
    their sum.

    BLOCK_SIZE_E >= E (`FITS_E`: equal) and BLOCK_SIZE_K >= TOPK. Of equal logits the first expert is chosen. Logits are
    compared, not weights, so that no rounding decides. Experts are numbered in float32, which is exact up to 2^24.
    """
    expert = tl.arange(0, BLOCK_SIZE_E)
    number = expert.to(tl.float32)[None, :]
    place = tl.arange(0, BLOCK_SIZE_K)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1, num_stages=NUM_STAGES):
        start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE_M + trip * SUB_BLOCK_SIZE_M
        if FITS_M:
            start = tl.minimum(start, M - SUB_BLOCK_SIZE_M)
        row = start + tl.arange(0, SUB_BLOCK_SIZE_M)
        at = row[:, None] * E + expert[None, :]
        if FITS_M and FITS_E:
            left = tl.load(x_ptr + at).to(tl.float32)
        else:
            mask = (row < M)[:, None] & (expert < E)[None, :]
            left = tl.load(x_ptr + at, mask=mask, other=float("-inf")).to(tl.float32)
        peak = tl.max(left, axis=1)
        total = tl.sum(tl.exp(left - peak[:, None]), axis=1)
        weight = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_K], dtype=tl.float32)
        chosen = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_K], dtype=tl.float32)
        best = peak
        for k in range(TOPK):
            first = tl.min(tl.where(left == best[:, None], number, BLOCK_SIZE_E * 1.0), axis=1)
            here = (place == k)[None, :]
            weight = tl.where(here, tl.exp(best - peak)[:, None], weight)
            chosen = tl.where(here, first[:, None], chosen)
            left = tl.where(number == first[:, None], float("-inf"), left)
            best = tl.max(left, axis=1)
        if RENORMALISE:
            total = tl.sum(weight, axis=1)
        weight = weight * (1.0 / total)[:, None]
        out = row[:, None] * TOPK + place[None, :]
        inside = (row < M)[:, None] & (place < TOPK)[None, :]
        tl.store(weight_ptr + out, weight, mask=inside)
        tl.store(id_ptr + out, chosen.to(tl.int32), mask=inside)
