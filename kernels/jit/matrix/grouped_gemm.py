"""Products of groups of rows, each with a matrix of its own; see `tilewise.kernels.matrix.grouped_gemm` for the spec.

The rows of group g are those from offsets[g] to offsets[g + 1], and are cut into tiles of their own. The launch does
not know how many tiles there are. Each program adds up the tiles of all groups and finds the group of a tile among the
sums.
"""

import triton
import triton.language as tl

from tilewise.kernels.jit.gemm import _dot, _multiple, _sums, _tile_of


@triton.jit
def _tiles_up_to(offsets_ptr, G, BLOCK_G: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return, for each group, how many tiles of rows it and the groups before it have; all groups fit in BLOCK_G."""
    groups = tl.arange(0, BLOCK_G)
    first = tl.load(offsets_ptr + groups, mask=groups < G, other=0)
    last = tl.load(offsets_ptr + groups + 1, mask=groups < G, other=0)
    return tl.cumsum(tl.cdiv(last - first, BLOCK_M).to(tl.int32), 0)


@triton.jit
def _found(tile_m, sums, offsets_ptr, BLOCK_M: tl.constexpr):
    """Return the group of a tile, the tile's first row, and the end of the group's rows."""
    before = sums <= tile_m
    group = tl.sum(before.to(tl.int32), 0)
    row = tl.load(offsets_ptr + group) + (tile_m - tl.max(tl.where(before, sums, 0), 0)) * BLOCK_M
    return group, row.to(tl.int32), tl.load(offsets_ptr + group + 1).to(tl.int32)


@triton.jit
def _store(out_ptr, total, rows, cols, last, N, WIDE: tl.constexpr):
    at = (rows.to(tl.int64) if WIDE else rows)[:, None] * N + cols[None, :]
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=(rows < last)[:, None] & (cols < N)[None, :])


@triton.jit
def grouped_gemm_pointers_kernel(
    a_ptr,
    b_ptr,
    offsets_ptr,
    out_ptr,
    N,
    K,
    G,
    COLUMN_MAJOR: tl.constexpr,
    FP8: tl.constexpr,
    EXACT_TERMS: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    WIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute tiles loaded through pointers: each program takes every so many-th of them, at most one if there are as
    many programs as tiles.

    EVEN_N, EVEN_K: the size is a multiple of the block. WIDE: a or out has 2^31 elements or more, or a matrix of b.
    ALIGNED divides N and K.
    """
    N, K = _multiple(N, ALIGNED), _multiple(K, ALIGNED)
    sums = _tiles_up_to(offsets_ptr, G, BLOCK_G, BLOCK_M)
    tiles_m = tl.max(sums, 0)
    for tile in tl.range(tl.program_id(0), tiles_m * tl.cdiv(N, BLOCK_N), tl.num_programs(0)):
        tile_m, tile_n = _tile_of(tile, tiles_m, N, 1, BLOCK_N, GROUP_M)
        group, row, last = _found(tile_m, sums, offsets_ptr, BLOCK_M)
        rows = row + tl.arange(0, BLOCK_M)
        cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        total = _sums(
            a_ptr,
            b_ptr + group.to(tl.int64) * K * N,
            last,
            N,
            K,
            rows,
            cols,
            0,
            tl.cdiv(K, BLOCK_K),
            COLUMN_MAJOR,
            FP8,
            EXACT_TERMS,
            False,
            EVEN_N,
            EVEN_K,
            WIDE,
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
        )
        _store(out_ptr, total, rows, cols, last, N, WIDE)


@triton.jit
def grouped_gemm_descriptors_kernel(
    a_ptr,
    b_ptr,
    offsets_ptr,
    out_ptr,
    M,
    N,
    K,
    G,
    COLUMN_MAJOR: tl.constexpr,
    FP8: tl.constexpr,
    EXACT_TERMS: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute the same with tiles loaded through tensor descriptors. A tile may load rows of the next group, which are
    not stored: hence stores go through pointers."""
    a_tiles = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    if COLUMN_MAJOR:
        b_tiles = tl.make_tensor_descriptor(b_ptr, [G, N, K], [N * K, K, 1], [1, BLOCK_N, BLOCK_K])
    else:
        b_tiles = tl.make_tensor_descriptor(b_ptr, [G, K, N], [N * K, N, 1], [1, BLOCK_K, BLOCK_N])
    sums = _tiles_up_to(offsets_ptr, G, BLOCK_G, BLOCK_M)
    tiles_m = tl.max(sums, 0)
    trips = tl.cdiv(K, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tl.cdiv(N, BLOCK_N), tl.num_programs(0)):
        tile_m, tile_n = _tile_of(tile, tiles_m, N, 1, BLOCK_N, GROUP_M)
        group, row, last = _found(tile_m, sums, offsets_ptr, BLOCK_M)
        col = tile_n * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for trip in range(trips):
            a = a_tiles.load([row, trip * BLOCK_K])
            if COLUMN_MAJOR:
                b = b_tiles.load([group, col, trip * BLOCK_K]).reshape(BLOCK_N, BLOCK_K).T
            else:
                b = b_tiles.load([group, trip * BLOCK_K, col]).reshape(BLOCK_K, BLOCK_N)
            total = _dot(a, b, total, FP8, EXACT_TERMS)
        _store(out_ptr, total, row + tl.arange(0, BLOCK_M), col + tl.arange(0, BLOCK_N), last, N, WIDE)


@triton.jit
def tile_table_kernel(
    offsets_ptr,
    groups_ptr,
    rows_ptr,
    count_ptr,
    GROUPS: tl.constexpr,
    TILES: tl.constexpr,
    STEP: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_M: tl.constexpr,
    SHIFT: tl.constexpr,
):
    """Write the group and the first row of each of TILES tiles of BLOCK_M = 2^SHIFT rows, STEP tiles per program, and
    with the first ones the number of tiles that there really are."""
    groups = tl.arange(0, BLOCK_G)
    first = tl.load(offsets_ptr + groups, mask=groups < GROUPS, other=0)
    last = tl.load(offsets_ptr + groups + 1, mask=groups < GROUPS, other=0)
    counts = (last - first + BLOCK_M - 1) >> SHIFT
    ends = tl.cumsum(counts, 0)
    starts = ends - counts
    tiles = tl.program_id(0) * STEP + tl.arange(0, STEP)
    own = (starts[None, :] <= tiles[:, None]).to(tl.int32) * (tiles[:, None] < ends[None, :]).to(tl.int32)
    rows = tl.sum(own * (first - starts * BLOCK_M)[None, :], 1) + tiles * BLOCK_M
    tl.store(groups_ptr + tiles, tl.sum(own * groups[None, :], 1), mask=tiles < TILES)
    tl.store(rows_ptr + tiles, rows, mask=tiles < TILES)
    if tl.program_id(0) == 0:
        tl.store(count_ptr, tl.sum(counts, 0))


@triton.jit
def grouped_gemm_masked_kernel(
    a_ptr,
    b_ptr,
    offsets_ptr,
    groups_ptr,
    rows_ptr,
    count_ptr,
    out_ptr,
    N,
    K,
    COLUMN_MAJOR: tl.constexpr,
    INTEGER: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute every so many-th tile of all groups' products on a cube core of Ascend, which reads the tiles' groups and
    rows from the table. Loads are masked along every axis, so that each becomes a transfer to L1. INTEGER: sums are in
    int32."""
    tiles_m = tl.load(count_ptr)
    for tile in range(tl.program_id(0), tiles_m * tl.cdiv(N, BLOCK_N), tl.num_programs(0)):
        tile_m, tile_n = _tile_of(tile, tiles_m, N, 1, BLOCK_N, GROUP_M)
        group = tl.load(groups_ptr + tile_m)
        last = tl.load(offsets_ptr + group + 1)
        matrix = b_ptr + tl.cast(group, tl.int64) * K * N
        rows = tl.load(rows_ptr + tile_m) + tl.arange(0, BLOCK_M)
        cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32 if INTEGER else tl.float32)
        for start in range(0, K, BLOCK_K):
            inner = start + tl.arange(0, BLOCK_K)
            held = (rows < last)[:, None] & (inner < K)[None, :]
            a = tl.load(a_ptr + rows[:, None] * K + inner[None, :], mask=held, other=0)
            if COLUMN_MAJOR:
                held = (cols < N)[:, None] & (inner < K)[None, :]
                b = tl.trans(tl.load(matrix + cols[:, None] * K + inner[None, :], mask=held, other=0))
            else:
                held = (inner < K)[:, None] & (cols < N)[None, :]
                b = tl.load(matrix + inner[:, None] * N + cols[None, :], mask=held, other=0)
            total = tl.dot(a, b, total)
        mask = (rows < last)[:, None] & (cols < N)[None, :]
        tl.store(out_ptr + rows[:, None] * N + cols[None, :], total.to(out_ptr.dtype.element_ty), mask=mask)
