"""Matrix products `out = activation(a @ b + bias)`; see `tilewise.kernels.matrix.gemm` for the spec.

All sums are in float32. `a` is row major; `b` is too, or column major (`COLUMN_MAJOR`: stored as N x K, like the
weights of a linear layer). Where `FP8` is set, a tensor core's sums of 8-bit products, which have fewer bits than
float32, are added to float32 ones every `EXACT_TERMS` terms (0: never).
"""

import triton
import triton.language as tl


@triton.jit
def _tile_of(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Return the row and column of a tile. `GROUP_M` rows of tiles are passed column by column: the tiles that run at a
    time then share rows of `a` and columns of `b` in the L2 cache."""
    rows, cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * cols)
    first = group * GROUP_M
    height = tl.minimum(rows - first, GROUP_M)
    inside = tile - group * GROUP_M * cols
    return first + inside % height, inside // height


@triton.jit
def _multiple(size, ALIGNED: tl.constexpr):
    """Return the size, so that the compiler sees that ALIGNED divides it: by itself it only looks for 16, although rows
    of 8 numbers are loaded as wide."""
    return size // ALIGNED * ALIGNED


@triton.jit
def _dot(a, b, total, FP8: tl.constexpr, EXACT_TERMS: tl.constexpr):
    if FP8 and EXACT_TERMS > 0:
        return tl.dot(a, b, total, max_num_imprecise_acc=EXACT_TERMS)
    return tl.dot(a, b, total)


@triton.jit
def part_of(at, inside, within, EVEN: tl.constexpr, EVEN_K: tl.constexpr):
    """Load a part of an operand, with zeros where a row or column is not `inside` or the depth not `within`: EVEN and
    EVEN_K say that all are.

    If rows outside read the last one instead, all programs would ask one slice of the L2 cache for its lines.
    """
    if EVEN and EVEN_K:
        return tl.load(at)
    if EVEN:
        return tl.load(at, mask=within, other=0.0)
    return tl.load(at, mask=inside if EVEN_K else inside & within, other=0.0)


@triton.jit
def _finished(total, bias_ptr, a_scale_ptr, b_scale_ptr, rows, cols, M, N, ACTIVATION: tl.constexpr):
    """Return the sums with their scales, bias and activation, in float32."""
    if a_scale_ptr is not None:
        total *= tl.load(a_scale_ptr + rows, mask=rows < M, other=0.0)[:, None]
        total *= tl.load(b_scale_ptr + cols, mask=cols < N, other=0.0)[None, :]
    if bias_ptr is not None:
        total += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == "relu":
        total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "silu":
        total = total / (1.0 + tl.exp(-total))
    elif ACTIVATION == "gelu":
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    return total


@triton.jit
def _sums(
    a_ptr,
    b_ptr,
    M,
    N,
    K,
    rows,
    cols,
    first,
    trips,
    COLUMN_MAJOR: tl.constexpr,
    FP8: tl.constexpr,
    EXACT_TERMS: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return the products of these rows and columns, added up over `trips` blocks of K from `first` on."""
    in_rows, in_cols = (rows < M)[:, None], (cols < N)[None, :]
    inner = tl.arange(0, BLOCK_K)
    start = first + inner
    if WIDE:
        rows, cols, start = rows.to(tl.int64), cols.to(tl.int64), start.to(tl.int64)
    a_at = a_ptr + rows[:, None] * K + start[None, :]
    b_at = b_ptr + (cols[None, :] * K + start[:, None] if COLUMN_MAJOR else start[:, None] * N + cols[None, :])
    b_step = BLOCK_K if COLUMN_MAJOR else BLOCK_K * N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for trip in range(trips):
        left = K - first - trip * BLOCK_K
        a = part_of(a_at, in_rows, inner[None, :] < left, EVEN_M, EVEN_K)
        b = part_of(b_at, in_cols, inner[:, None] < left, EVEN_N, EVEN_K)
        total = _dot(a, b, total, FP8, EXACT_TERMS)
        a_at += BLOCK_K
        b_at += b_step
    return total


@triton.jit
def gemm_pointers_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    a_scale_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    COLUMN_MAJOR: tl.constexpr,
    ACTIVATION: tl.constexpr,
    FP8: tl.constexpr,
    EXACT_TERMS: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    WIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute one tile per program, loaded through pointers.

    EVEN_M, EVEN_N, EVEN_K: the size is a multiple of the block. WIDE: a matrix has 2^31 elements or more. ALIGNED
    divides N and K.
    """
    N, K = _multiple(N, ALIGNED), _multiple(K, ALIGNED)  # noqa: N806
    tile_m, tile_n = _tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    total = _sums(
        a_ptr,
        b_ptr,
        M,
        N,
        K,
        rows,
        cols,
        0,
        tl.cdiv(K, BLOCK_K),
        COLUMN_MAJOR,
        FP8,
        EXACT_TERMS,
        EVEN_M,
        EVEN_N,
        EVEN_K,
        WIDE,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )
    total = _finished(total, bias_ptr, a_scale_ptr, b_scale_ptr, rows, cols, M, N, ACTIVATION)
    out_rows = rows.to(tl.int64) if WIDE else rows
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    tl.store(out_ptr + out_rows[:, None] * N + cols[None, :], total.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gemm_parts_kernel(
    a_ptr,
    b_ptr,
    parts_ptr,
    M,
    N,
    K,
    COLUMN_MAJOR: tl.constexpr,
    FP8: tl.constexpr,
    EXACT_TERMS: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    WIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    """Compute the sums of a tile over one of the `SPLIT_K` parts of K, which are the grid's second axis.

    Each part has its own M x N matrix of `parts`, of fewer than 2^31 elements together. EVEN_K: every part's size is a
    multiple of the block. ALIGNED divides N and K.
    """
    N, K = _multiple(N, ALIGNED), _multiple(K, ALIGNED)  # noqa: N806
    tile_m, tile_n = _tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    trips = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K)
    part = tl.program_id(1)
    total = _sums(
        a_ptr,
        b_ptr,
        M,
        N,
        K,
        rows,
        cols,
        part * trips * BLOCK_K,
        trips,
        COLUMN_MAJOR,
        FP8,
        EXACT_TERMS,
        EVEN_M,
        EVEN_N,
        EVEN_K,
        WIDE,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    tl.store(parts_ptr + part * M * N + rows[:, None] * N + cols[None, :], total, mask=mask)


@triton.jit
def gemm_sum_kernel(
    parts_ptr,
    bias_ptr,
    a_scale_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    ACTIVATION: tl.constexpr,
    SPLIT_K: tl.constexpr,
    SUM_M: tl.constexpr,
    SUM_N: tl.constexpr,
):
    """Add the parts' sums, always in the same order, and finish them."""
    rows = tl.program_id(0) * SUM_M + tl.arange(0, SUM_M)
    cols = tl.program_id(1) * SUM_N + tl.arange(0, SUM_N)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    at = rows[:, None] * N + cols[None, :]
    total = tl.zeros((SUM_M, SUM_N), dtype=tl.float32)
    for part in tl.static_range(SPLIT_K):
        total += tl.load(parts_ptr + part * M * N + at, mask=mask, other=0.0)
    total = _finished(total, bias_ptr, a_scale_ptr, b_scale_ptr, rows, cols, M, N, ACTIVATION)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gemm_descriptors_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    a_scale_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    COLUMN_MAJOR: tl.constexpr,
    ACTIVATION: tl.constexpr,
    FP8: tl.constexpr,
    EXACT_TERMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PARTS_N: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """Compute tiles loaded and stored through tensor descriptors: each program takes one, or every so many-th.

    The tile is stored in `PARTS_N` parts, which need less shared memory. FLATTEN: the loops over tiles and over K are
    one to the compiler, which then loads a tile's first operands while the last one is stored.
    """
    a_tiles = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    if COLUMN_MAJOR:
        b_tiles = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    else:
        b_tiles = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BLOCK_K, BLOCK_N])
    out_tiles = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N // PARTS_N])
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    trips = tl.cdiv(K, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE):
        tile_m, tile_n = _tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for trip in range(trips):
            a = a_tiles.load([row, trip * BLOCK_K])
            b = b_tiles.load([col, trip * BLOCK_K]).T if COLUMN_MAJOR else b_tiles.load([trip * BLOCK_K, col])
            total = _dot(a, b, total, FP8, EXACT_TERMS)
        rows = row + tl.arange(0, BLOCK_M)
        if PARTS_N == 2:
            halves = tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            left, right = tl.split(halves)
            cols = col + tl.arange(0, BLOCK_N // 2)
            left = _finished(left, bias_ptr, a_scale_ptr, b_scale_ptr, rows, cols, M, N, ACTIVATION)
            out_tiles.store([row, col], left.to(out_ptr.dtype.element_ty))
            cols += BLOCK_N // 2
            right = _finished(right, bias_ptr, a_scale_ptr, b_scale_ptr, rows, cols, M, N, ACTIVATION)
            out_tiles.store([row, col + BLOCK_N // 2], right.to(out_ptr.dtype.element_ty))
        else:
            cols = col + tl.arange(0, BLOCK_N)
            total = _finished(total, bias_ptr, a_scale_ptr, b_scale_ptr, rows, cols, M, N, ACTIVATION)
            out_tiles.store([row, col], total.to(out_ptr.dtype.element_ty))


@triton.jit
def gemm_masked_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    a_scale_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    COLUMN_MAJOR: tl.constexpr,
    ACTIVATION: tl.constexpr,
    INTEGER: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute tiles whose loads are masked along every axis: each program takes one, or every so many-th.

    Ascend's compiler turns such a load into one transfer to L1. Clamped or wrapped indices, or columns with a stride
    known at run time only, would become copies by vector cores or element by element. INTEGER: sums are in int32.
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile_m, tile_n = _tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32 if INTEGER else tl.float32)
        for start in range(0, K, BLOCK_K):
            inner = start + tl.arange(0, BLOCK_K)
            a = tl.load(
                a_ptr + rows[:, None] * K + inner[None, :], mask=(rows < M)[:, None] & (inner < K)[None, :], other=0
            )
            if COLUMN_MAJOR:
                held = (cols < N)[:, None] & (inner < K)[None, :]
                b = tl.trans(tl.load(b_ptr + cols[:, None] * K + inner[None, :], mask=held, other=0))
            else:
                held = (inner < K)[:, None] & (cols < N)[None, :]
                b = tl.load(b_ptr + inner[:, None] * N + cols[None, :], mask=held, other=0)
            total = tl.dot(a, b, total)
        if INTEGER and out_ptr.dtype.element_ty != tl.int32:
            total = total.to(tl.float32)
        total = _finished(total, bias_ptr, a_scale_ptr, b_scale_ptr, rows, cols, M, N, ACTIVATION)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        tl.store(out_ptr + rows[:, None] * N + cols[None, :], total.to(out_ptr.dtype.element_ty), mask=mask)
