"""A layer of experts on Ascend, in nine launches, or ten with 8-bit products; see `kernels.matrix.fused_moe`.

A *pair* is a token and one of its TOPK experts, numbered token by token. Pairs are sorted by expert: the first
launches find the *place* of each, and then rows are moved to their places, because a cube core's loads take whole tiles
of rows that follow one another. The projections are products of groups, with one expert's rows in each. Vector cores do
all the rest, row by row. Nothing is scattered but whole rows: the cores would store single elements one at a time.
"""

import triton
import triton.language as tl

from tilewise.kernels.jit.matrix.grouped_gemm import grouped_gemm_masked_kernel
from tilewise.kernels.jit.quantize import _MIDDLE, TINY

# The places of pairs ---------------------------------------------------------------------------------------------

_WIDTH = tl.constexpr(64)
"""Experts, or earlier pairs, that STEP pairs are compared with at a time."""


@triton.jit
def moe_slice_kernel(topk_ids_ptr, counts_ptr, M, E, TOPK, SLICE: tl.constexpr, STEP: tl.constexpr):
    """Count each expert's pairs in a slice of SLICE pairs: counts [slices, E]."""
    first = tl.program_id(0) * SLICE
    for block in range(0, E, _WIDTH):
        experts = block + tl.arange(0, _WIDTH)
        found = tl.zeros([_WIDTH], dtype=tl.int32)
        for start in range(first, tl.minimum(first + SLICE, M * TOPK), STEP):
            pairs = start + tl.arange(0, STEP)
            ids = tl.load(topk_ids_ptr + pairs, mask=pairs < M * TOPK, other=-1)
            found += tl.sum((ids[:, None] == experts[None, :]).to(tl.int32), 0)
        tl.store(counts_ptr + tl.program_id(0) * E + experts, found, mask=experts < E)


@triton.jit
def moe_bases_kernel(counts_ptr, bases_ptr, offsets_ptr, E, SLICES: tl.constexpr, BLOCK_E: tl.constexpr):
    """Write the place of the first pair of each expert in a slice: bases [slices, E], and with the first slice's where
    each expert's places begin and end. BLOCK_E >= E."""
    experts = tl.arange(0, BLOCK_E)
    total = tl.zeros([BLOCK_E], dtype=tl.int32)
    before = tl.zeros([BLOCK_E], dtype=tl.int32)
    for each in range(SLICES):
        found = tl.load(counts_ptr + each * E + experts, mask=experts < E, other=0)
        total += found
        before += found * (each < tl.program_id(0)).to(tl.int32)
    ends = tl.cumsum(total, 0)
    tl.store(bases_ptr + tl.program_id(0) * E + experts, ends - total + before, mask=experts < E)
    if tl.program_id(0) == 0:
        tl.store(offsets_ptr, 0)
        tl.store(offsets_ptr + 1 + experts, ends, mask=experts < E)


@triton.jit
def moe_place_kernel(topk_ids_ptr, bases_ptr, places_ptr, M, E, TOPK, SLICE: tl.constexpr, STEP: tl.constexpr):
    """Write the place of each pair of a slice: its expert's base there, and the number of earlier pairs of its own."""
    first = tl.program_id(0) * SLICE
    for start in range(first, tl.minimum(first + SLICE, M * TOPK), STEP):
        pairs = start + tl.arange(0, STEP)
        ids = tl.load(topk_ids_ptr + pairs, mask=pairs < M * TOPK, other=-1)
        places = tl.zeros([STEP], dtype=tl.int32)
        for block in range(0, E, _WIDTH):
            experts = block + tl.arange(0, _WIDTH)
            bases = tl.load(bases_ptr + tl.program_id(0) * E + experts, mask=experts < E, other=0)
            places += tl.sum((ids[:, None] == experts[None, :]).to(tl.int32) * bases[None, :], 1)
        for block in range(first, start + STEP, _WIDTH):
            others = block + tl.arange(0, _WIDTH)
            of_others = tl.load(topk_ids_ptr + others, mask=others < M * TOPK, other=-2)
            earlier = (others[None, :] < pairs[:, None]).to(tl.int32)
            places += tl.sum((ids[:, None] == of_others[None, :]).to(tl.int32) * earlier, 1)
        tl.store(places_ptr + pairs, places, mask=pairs < M * TOPK)


# Rows ------------------------------------------------------------------------------------------------------------


@triton.jit
def moe_spread_kernel(
    x_ptr,
    small_x_ptr,
    places_ptr,
    sorted_ptr,
    M,
    K,
    TOPK,
    SMALL: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Copy the row of each of ROWS tokens to the places of its pairs, TILE columns at a time. SMALL: as int8."""
    from_ptr = small_x_ptr if SMALL else x_ptr
    for token in range(tl.program_id(0) * ROWS, tl.minimum(tl.program_id(0) * ROWS + ROWS, M)):
        for start in range(0, K, TILE):
            cols = start + tl.arange(0, TILE)
            row = tl.load(from_ptr + tl.cast(token, tl.int64) * K + cols, mask=cols < K, other=0)
            for part in range(TOPK):
                place = tl.load(places_ptr + token * TOPK + part).to(tl.int64)
                tl.store(sorted_ptr + place * K + cols, row, mask=cols < K)


@triton.jit
def _gated(gate, factor):
    return gate / (1.0 + tl.exp(-gate)) * factor


@triton.jit
def moe_gate_kernel(gate_up_ptr, activated_ptr, M, N, TOPK, ROWS: tl.constexpr, TILE: tl.constexpr):
    """Multiply silu of the first N columns of each of ROWS rows by the others."""
    for row in range(tl.program_id(0) * ROWS, tl.minimum(tl.program_id(0) * ROWS + ROWS, M * TOPK)):
        at = tl.cast(row, tl.int64) * N
        for start in range(0, N, TILE):
            cols = start + tl.arange(0, TILE)
            gate = tl.load(gate_up_ptr + 2 * at + cols, mask=cols < N, other=0.0).to(tl.float32)
            factor = tl.load(gate_up_ptr + 2 * at + N + cols, mask=cols < N, other=0.0).to(tl.float32)
            y = _gated(gate, factor)
            tl.store(activated_ptr + at + cols, y.to(activated_ptr.dtype.element_ty), mask=cols < N)


@triton.jit
def _scaled_and_gated(at, scale_at, cols, N, scale):
    """Return silu times factor of a row of int32 sums, with the scales of their rows and columns."""
    gate = tl.load(at + cols, mask=cols < N, other=0).to(tl.float32)
    gate *= tl.load(scale_at + cols, mask=cols < N, other=0.0) * scale
    factor = tl.load(at + N + cols, mask=cols < N, other=0).to(tl.float32)
    factor *= tl.load(scale_at + N + cols, mask=cols < N, other=0.0) * scale
    return _gated(gate, factor)


@triton.jit
def moe_requantize_kernel(
    gate_up_ptr,
    x_scale_ptr,
    w13_scale_ptr,
    topk_ids_ptr,
    places_ptr,
    activated_ptr,
    activated_scale_ptr,
    M,
    N,
    TOPK,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Do the same with the int32 sums of ROWS pairs, and quantise each row with a scale of its own."""
    for pair in range(tl.program_id(0) * ROWS, tl.minimum(tl.program_id(0) * ROWS + ROWS, M * TOPK)):
        place = tl.load(places_ptr + pair).to(tl.int64)
        expert = tl.load(topk_ids_ptr + pair).to(tl.int64)
        scale = tl.load(x_scale_ptr + pair // TOPK)
        at, scale_at = gate_up_ptr + place * 2 * N, w13_scale_ptr + expert * 2 * N
        peaks = tl.zeros([TILE], dtype=tl.float32)
        for start in range(0, N, TILE):
            cols = start + tl.arange(0, TILE)
            peaks = tl.maximum(peaks, tl.abs(_scaled_and_gated(at, scale_at, cols, N, scale)))
        most = tl.maximum(tl.max(peaks, 0), TINY)
        tl.store(activated_scale_ptr + place, most / 127.0)
        for start in range(0, N, TILE):
            cols = start + tl.arange(0, TILE)
            y = _scaled_and_gated(at, scale_at, cols, N, scale) * (127.0 / most)
            whole = (y + _MIDDLE) - _MIDDLE  # to the nearest, before the conversion that would cut fractions off
            tl.store(activated_ptr + place * N + cols, whole.to(tl.int8), mask=cols < N)


@triton.jit
def moe_combine_kernel(
    parts_ptr,
    activated_scale_ptr,
    w2_scale_ptr,
    topk_weights_ptr,
    topk_ids_ptr,
    places_ptr,
    out_ptr,
    M,
    K,
    TOPK,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Add up the weighted parts of each of ROWS tokens, always in the same order."""
    for token in range(tl.program_id(0) * ROWS, tl.minimum(tl.program_id(0) * ROWS + ROWS, M)):
        for start in range(0, K, TILE):
            cols = start + tl.arange(0, TILE)
            total = tl.zeros([TILE], dtype=tl.float32)
            for part in range(TOPK):
                pair = token * TOPK + part
                place = tl.load(places_ptr + pair).to(tl.int64)
                weight = tl.load(topk_weights_ptr + pair)
                found = tl.load(parts_ptr + place * K + cols, mask=cols < K, other=0).to(tl.float32)
                if w2_scale_ptr is not None:
                    expert = tl.load(topk_ids_ptr + pair).to(tl.int64)
                    weight *= tl.load(activated_scale_ptr + place)
                    found *= tl.load(w2_scale_ptr + expert * K + cols, mask=cols < K, other=0.0)
                total += weight * found
            at = out_ptr + tl.cast(token, tl.int64) * K + cols
            tl.store(at, total.to(out_ptr.dtype.element_ty), mask=cols < K)


# The projections -------------------------------------------------------------------------------------------------


@triton.jit
def moe_sorted_up_kernel(
    sorted_ptr,
    w13_ptr,
    offsets_ptr,
    groups_ptr,
    rows_ptr,
    count_ptr,
    gate_up_ptr,
    N,
    K,
    INTEGER: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """Compute gate_up [M * TOPK, 2 N]: the sorted rows times their experts' w13 [2 N, K]."""
    grouped_gemm_masked_kernel(
        sorted_ptr,
        w13_ptr,
        offsets_ptr,
        groups_ptr,
        rows_ptr,
        count_ptr,
        gate_up_ptr,
        2 * N,
        K,
        True,
        INTEGER,
        BLOCK_SIZE_M,
        BLOCK_SIZE_N,
        BLOCK_SIZE_K,
        GROUP_SIZE_M,
    )


@triton.jit
def moe_sorted_down_kernel(
    activated_ptr,
    w2_ptr,
    offsets_ptr,
    groups_ptr,
    rows_ptr,
    count_ptr,
    parts_ptr,
    N,
    K,
    INTEGER: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """Compute parts [M * TOPK, K]: the activated rows times their experts' w2 [K, N]."""
    grouped_gemm_masked_kernel(
        activated_ptr,
        w2_ptr,
        offsets_ptr,
        groups_ptr,
        rows_ptr,
        count_ptr,
        parts_ptr,
        K,
        N,
        True,
        INTEGER,
        BLOCK_SIZE_M,
        BLOCK_SIZE_N,
        BLOCK_SIZE_K,
        GROUP_SIZE_M,
    )
