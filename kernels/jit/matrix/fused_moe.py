"""A layer of experts in six launches, or seven with 8-bit products; see `tilewise.kernels.matrix.fused_moe`.

A *pair* is a token and one of its TOPK experts, numbered token by token. The first two launches sort the pairs by
expert, in the order of their numbers, and fill up each expert's with M * TOPK, which is no pair, to whole blocks of
BLOCK_SIZE_M. A block thus has one expert, and a tile of a projection is some columns of a block.
"""

import triton
import triton.language as tl

from tilewise.kernels.jit.gemm import _sums, _tile_of
from tilewise.kernels.jit.matrix.scaled_sums import scaled_sums
from tilewise.kernels.jit.quantize import TINY, _narrowed

# The pairs of each expert ----------------------------------------------------------------------------------------


@triton.jit
def moe_count_kernel(topk_ids_ptr, counts_ptr, M, TOPK, STEP: tl.constexpr):
    """Count the pairs of one expert, STEP at a time."""
    expert = tl.program_id(0)
    found = tl.zeros([STEP], dtype=tl.int32)
    for start in range(0, M * TOPK, STEP):
        pairs = start + tl.arange(0, STEP)
        found += (tl.load(topk_ids_ptr + pairs, mask=pairs < M * TOPK, other=-1) == expert).to(tl.int32)
    tl.store(counts_ptr + expert, tl.sum(found, 0))


@triton.jit
def moe_sort_kernel(
    topk_ids_ptr,
    counts_ptr,
    pairs_ptr,
    experts_ptr,
    blocks_ptr,
    M,
    E,
    TOPK,
    STEP: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
):
    """Write one expert's pairs in order behind those of the experts before it, the expert of each of its blocks, and
    with the first expert's the number of all blocks. BLOCK_E >= E."""
    expert, experts = tl.program_id(0), tl.arange(0, BLOCK_E)
    blocks = tl.cdiv(tl.load(counts_ptr + experts, mask=experts < E, other=0), BLOCK_SIZE_M)
    first = tl.sum(tl.where(experts < expert, blocks, 0), 0)
    last = tl.sum(tl.where(experts <= expert, blocks, 0), 0)
    if expert == 0:
        tl.store(blocks_ptr, tl.sum(blocks, 0))
    for block in range(first, last):
        tl.store(experts_ptr + block, expert)
    end = first * BLOCK_SIZE_M
    for start in range(0, M * TOPK, STEP):
        pairs = start + tl.arange(0, STEP)
        own = (tl.load(topk_ids_ptr + pairs, mask=pairs < M * TOPK, other=-1) == expert).to(tl.int32)
        tl.store(pairs_ptr + end + tl.cumsum(own, 0) - 1, pairs, mask=own > 0)
        end += tl.sum(own, 0)
    rest = end + tl.arange(0, BLOCK_SIZE_M)
    tl.store(pairs_ptr + rest, tl.zeros([BLOCK_SIZE_M], dtype=tl.int32) + M * TOPK, mask=rest < last * BLOCK_SIZE_M)


# The inputs of a projection --------------------------------------------------------------------------------------


@triton.jit
def _input(x_ptr, rows, cols, ROWS, WIDTH, GATED: tl.constexpr):
    """Load a tile of x as float32, with 0 outside; GATED: of silu(x[m, n]) * x[m, WIDTH + n], rounded to x's dtype."""
    mask = (rows < ROWS)[:, None] & (cols < WIDTH)[None, :]
    if GATED:
        at = x_ptr + 2 * rows[:, None] * WIDTH + cols[None, :]
        gate = tl.load(at, mask=mask, other=0.0).to(tl.float32)
        factor = tl.load(at + WIDTH, mask=mask, other=0.0).to(tl.float32)
        y = (gate / (1.0 + tl.exp(-gate)) * factor).to(x_ptr.dtype.element_ty)
    else:
        y = tl.load(x_ptr + rows[:, None] * WIDTH + cols[None, :], mask=mask, other=0.0)
    return y.to(tl.float32)


@triton.jit
def _prepared(
    x_ptr,
    out_ptr,
    scale_ptr,
    ROWS,
    WIDTH,
    GATED: tl.constexpr,
    QUANT: tl.constexpr,
    GROUP: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
):
    """Write a tile of a projection's input: in 16 bits, or in 8 with a scale for each GROUP columns of a row (fp8) or
    for each row (int8), which are then a program's whole rows."""
    rows = tl.program_id(0).to(tl.int64) * TILE_M + tl.arange(0, TILE_M)
    if QUANT == "int8_w8a8":
        peaks = tl.zeros([TILE_M, TILE_N], dtype=tl.float32)
        for start in range(0, WIDTH, TILE_N):
            peaks = tl.maximum(peaks, tl.abs(_input(x_ptr, rows, start + tl.arange(0, TILE_N), ROWS, WIDTH, GATED)))
        most = tl.maximum(tl.max(peaks, axis=1), TINY)
        tl.store(scale_ptr + rows, most / 127.0, mask=rows < ROWS)
        for start in range(0, WIDTH, TILE_N):
            cols = start + tl.arange(0, TILE_N)
            y = _input(x_ptr, rows, cols, ROWS, WIDTH, GATED) * (127.0 / most)[:, None]
            _store(out_ptr, _narrowed(y, out_ptr), rows, cols, ROWS, WIDTH)
    else:
        cols = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
        y = _input(x_ptr, rows, cols, ROWS, WIDTH, GATED)
        if QUANT != "none":
            y = tl.reshape(y, [TILE_M, TILE_N // GROUP, GROUP])
            most = tl.maximum(tl.max(tl.abs(y), axis=2), TINY)
            groups = tl.program_id(1) * (TILE_N // GROUP) + tl.arange(0, TILE_N // GROUP)
            _store(scale_ptr, most / 448.0, rows, groups, ROWS, tl.cdiv(WIDTH, GROUP))
            y = tl.reshape(y * (448.0 / most)[:, :, None], [TILE_M, TILE_N])
        _store(out_ptr, y.to(out_ptr.dtype.element_ty), rows, cols, ROWS, WIDTH)


@triton.jit
def _store(ptr, y, rows, cols, ROWS, WIDTH):
    tl.store(ptr + rows[:, None] * WIDTH + cols[None, :], y, mask=(rows < ROWS)[:, None] & (cols < WIDTH)[None, :])


@triton.jit
def moe_quantize_kernel(
    x_ptr,
    small_x_ptr,
    x_scale_ptr,
    M,
    K,
    QUANT: tl.constexpr,
    GROUP: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
):
    """Quantise x [M, K]."""
    _prepared(x_ptr, small_x_ptr, x_scale_ptr, M, K, False, QUANT, GROUP, TILE_M, TILE_N)


@triton.jit
def moe_activate_kernel(
    gate_up_ptr,
    activated_ptr,
    activated_scale_ptr,
    M,
    N,
    TOPK,
    QUANT: tl.constexpr,
    GROUP: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
):
    """Multiply silu of the first N columns of each pair's [2 N] by the others, and quantise the product if asked to."""
    _prepared(gate_up_ptr, activated_ptr, activated_scale_ptr, M * TOPK, N, True, QUANT, GROUP, TILE_M, TILE_N)


# The projections -------------------------------------------------------------------------------------------------


@triton.jit
def _project(
    a_ptr,
    w_ptr,
    a_scale_ptr,
    w_scale_ptr,
    weight_ptr,
    pairs_ptr,
    experts_ptr,
    blocks_ptr,
    out_ptr,
    PAIRS,
    COLS,
    DEPTH,
    SHARING,
    QUANT: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_COLS: tl.constexpr,
    EVEN_DEPTH: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Multiply a tile of pairs by their expert's matrix [COLS, DEPTH], and by their weights if there are any.

    SHARING pairs have one row of a [.., DEPTH]; each has its own of out [PAIRS, COLS].
    """
    blocks = tl.load(blocks_ptr)
    if tl.program_id(0) < blocks * tl.cdiv(COLS, BLOCK_N):
        block, tile_n = _tile_of(tl.program_id(0), blocks, COLS, 1, BLOCK_N, GROUP_M)
        pairs = tl.load(pairs_ptr + block * BLOCK_M + tl.arange(0, BLOCK_M))
        expert = tl.load(experts_ptr + block).to(tl.int64)
        rows = pairs // SHARING  # of a place without a pair, which has the number PAIRS, there is none
        cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        if QUANT == "none":
            total = _sums(
                a_ptr,
                w_ptr + expert * COLS * DEPTH,
                PAIRS // SHARING,
                COLS,
                DEPTH,
                rows,
                cols,
                0,
                tl.cdiv(DEPTH, BLOCK_K),
                True,
                False,
                0,
                False,
                EVEN_COLS,
                EVEN_DEPTH,
                WIDE,
                BLOCK_M,
                BLOCK_N,
                BLOCK_K,
            )
        else:
            of_expert = COLS if QUANT == "int8_w8a8" else tl.cdiv(COLS, GROUP) * tl.cdiv(DEPTH, GROUP)
            scale_ptr = w_scale_ptr + expert * of_expert
            total = scaled_sums(
                a_ptr,
                w_ptr + expert * COLS * DEPTH,
                a_scale_ptr,
                scale_ptr,
                PAIRS // SHARING,
                COLS,
                DEPTH,
                rows,
                tile_n * BLOCK_N,
                GROUP,
                False,
                EVEN_COLS,
                EVEN_DEPTH,
                WIDE,
                BLOCK_M,
                BLOCK_N,
                BLOCK_K,
            )
            if QUANT == "int8_w8a8":
                total *= tl.load(a_scale_ptr + rows, mask=pairs < PAIRS, other=0.0)[:, None]
                total *= tl.load(scale_ptr + cols, mask=cols < COLS, other=0.0)[None, :]
        if weight_ptr is not None:
            total *= tl.load(weight_ptr + pairs, mask=pairs < PAIRS, other=0.0)[:, None]
        _store(out_ptr, total.to(out_ptr.dtype.element_ty), pairs.to(tl.int64), cols, PAIRS, COLS)


@triton.jit
def moe_up_kernel(
    x_ptr,
    small_x_ptr,
    x_scale_ptr,
    w13_ptr,
    w13_scale_ptr,
    pairs_ptr,
    experts_ptr,
    blocks_ptr,
    gate_up_ptr,
    M,
    N,
    K,
    TOPK,
    QUANT: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_COLS: tl.constexpr,
    EVEN_DEPTH: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """Compute gate_up [M * TOPK, 2 N]: the tokens' rows of x times their experts' w13 [2 N, K]."""
    _project(
        x_ptr if QUANT == "none" else small_x_ptr,
        w13_ptr,
        x_scale_ptr,
        w13_scale_ptr,
        None,
        pairs_ptr,
        experts_ptr,
        blocks_ptr,
        gate_up_ptr,
        M * TOPK,
        2 * N,
        K,
        TOPK,
        QUANT,
        GROUP,
        EVEN_COLS,
        EVEN_DEPTH,
        WIDE,
        BLOCK_SIZE_M,
        BLOCK_SIZE_N,
        BLOCK_SIZE_K,
        GROUP_SIZE_M,
    )


@triton.jit
def moe_down_kernel(
    activated_ptr,
    activated_scale_ptr,
    w2_ptr,
    w2_scale_ptr,
    topk_weights_ptr,
    pairs_ptr,
    experts_ptr,
    blocks_ptr,
    parts_ptr,
    M,
    N,
    K,
    TOPK,
    QUANT: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_COLS: tl.constexpr,
    EVEN_DEPTH: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """Compute parts [M * TOPK, K]: each pair's row times its expert's w2 [K, N] and the pair's weight."""
    _project(
        activated_ptr,
        w2_ptr,
        activated_scale_ptr,
        w2_scale_ptr,
        topk_weights_ptr,
        pairs_ptr,
        experts_ptr,
        blocks_ptr,
        parts_ptr,
        M * TOPK,
        K,
        N,
        1,
        QUANT,
        GROUP,
        EVEN_COLS,
        EVEN_DEPTH,
        WIDE,
        BLOCK_SIZE_M,
        BLOCK_SIZE_N,
        BLOCK_SIZE_K,
        GROUP_SIZE_M,
    )


@triton.jit
def moe_sum_kernel(parts_ptr, out_ptr, M, K, TOPK, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """Add up the parts of each token, always in the same order."""
    rows = tl.program_id(0).to(tl.int64) * TILE_M + tl.arange(0, TILE_M)
    cols = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    mask = (rows < M)[:, None] & (cols < K)[None, :]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for part in range(TOPK):
        at = (rows * TOPK + part)[:, None] * K + cols[None, :]
        total += tl.load(parts_ptr + at, mask=mask, other=0.0).to(tl.float32)
    _store(out_ptr, total.to(out_ptr.dtype.element_ty), rows, cols, M, K)
