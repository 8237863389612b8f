"""Matrix products of 16-bit floats in Gluon; see `tilewise.kernels.matrix.gemm` for the spec.

One warp loads operands through tensor descriptors, which the host makes, and one or two groups of four warps multiply.
An instruction multiplies 64 rows or more. A tile of fewer rows is computed transposed (`SWAP`): columns of b are then
the instruction's rows. All sums are in float32.
"""

try:
    import triton.experimental.gluon.language as gl
    from triton.experimental import gluon
    from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

    HAS_GLUON = gl.constexpr(True)
except ImportError:  # the kernel is then a function of plain Triton that refuses to compile, saying why
    import triton as gluon
    import triton.language as gl

    HAS_GLUON = gl.constexpr(False)


@gluon.jit
def _tile_of(tile, M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    """Return the row and column of a tile, as `gemm.py` does."""
    rows, cols = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * cols)
    first = group * GROUP_M
    height = gl.minimum(rows - first, GROUP_M)
    inside = tile - group * GROUP_M * cols
    return first + inside % height, inside // height


@gluon.jit
def _load(
    operands,
    tiles,
    barriers,
    sizes,
    COLUMN_MAJOR: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    """Load the operands of all of the program's tiles, block by block."""
    a_blocks, b_blocks = operands
    a_tiles, b_tiles = tiles
    ready, free = barriers
    M, N, K = sizes
    trips = gl.cdiv(K, BLOCK_K)
    loaded = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        tile_m, tile_n = _tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        for trip in range(trips):
            slot, phase = loaded % NUM_STAGES, (loaded // NUM_STAGES) & 1
            mbarrier.wait(free.index(slot), phase ^ 1)
            mbarrier.expect(ready.index(slot), a_blocks.block_type.nbytes + b_blocks.block_type.nbytes)
            k = trip * BLOCK_K
            tma.async_copy_global_to_shared(a_blocks, [row, k], ready.index(slot), a_tiles.index(slot))
            at = [col, k] if COLUMN_MAJOR else [k, col]
            tma.async_copy_global_to_shared(b_blocks, at, ready.index(slot), b_tiles.index(slot))
            loaded += 1


@gluon.jit
def _store(outputs, total, row, col, M, N, ACTIVATION: gl.constexpr, SWAP: gl.constexpr):
    """Store a tile's sums, [rows, columns] or with SWAP [columns, rows], with their scales, bias and activation."""
    out_ptr, bias_ptr, a_scale_ptr, b_scale_ptr = outputs
    ROW_AXIS: gl.constexpr = 1 if SWAP else 0
    SUMS: gl.constexpr = total.type.layout
    rows = row + gl.arange(0, total.shape[ROW_AXIS], layout=gl.SliceLayout(1 - ROW_AXIS, SUMS))
    cols = col + gl.arange(0, total.shape[1 - ROW_AXIS], layout=gl.SliceLayout(ROW_AXIS, SUMS))
    if a_scale_ptr is not None:
        total *= gl.expand_dims(gl.load(a_scale_ptr + rows, mask=rows < M, other=0.0), 1 - ROW_AXIS)
        total *= gl.expand_dims(gl.load(b_scale_ptr + cols, mask=cols < N, other=0.0), ROW_AXIS)
    if bias_ptr is not None:
        bias = gl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(gl.float32)
        total += gl.expand_dims(bias, ROW_AXIS)
    if ACTIVATION == "relu":
        total = gl.where(total < 0.0, 0.0, total)  # keeps NaN
    elif ACTIVATION == "silu":
        total = total / (1.0 + gl.exp(-total))
    elif ACTIVATION == "gelu":
        total = 0.5 * total * (1.0 + gl.erf(total * 0.7071067811865476))
    out = total.to(out_ptr.dtype.element_ty)
    if SWAP:
        at = out_ptr + gl.expand_dims(rows, 0).to(gl.int64) * N + gl.expand_dims(cols, 1)
        gl.store(at, out, mask=gl.expand_dims(rows < M, 0) & gl.expand_dims(cols < N, 1))
    else:
        ACROSS: gl.constexpr = min(32, out.shape[1] // 8)
        WIDE: gl.constexpr = gl.BlockedLayout([1, 8], [32 // ACROSS, ACROSS], [4, 1], [1, 0])
        out = gl.convert_layout(out, WIDE)
        rows = row + gl.arange(0, out.shape[0], layout=gl.SliceLayout(1, WIDE))
        cols = col + gl.arange(0, out.shape[1], layout=gl.SliceLayout(0, WIDE))
        at = out_ptr + rows[:, None].to(gl.int64) * N + cols[None, :]
        gl.store(at, out, mask=(rows < M)[:, None] & (cols < N)[None, :])


@gluon.jit
def _multiply(
    outputs,
    tiles,
    barriers,
    sizes,
    GROUP: gl.constexpr,
    GROUPS: gl.constexpr,
    SWAP: gl.constexpr,
    COLUMN_MAJOR: gl.constexpr,
    ACTIVATION: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    """Compute one of GROUPS parts of the program's tiles: of their rows or, with SWAP, of their columns."""
    a_tiles, b_tiles = tiles
    ready, free = barriers
    M, N, K = sizes
    HIGH: gl.constexpr = (BLOCK_N if SWAP else BLOCK_M) // GROUPS
    WIDE: gl.constexpr = BLOCK_M if SWAP else BLOCK_N
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, WIDE, 16])
    trips = gl.cdiv(K, BLOCK_K)
    used = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        tile_m, tile_n = _tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        total = gl.zeros([HIGH, WIDE], gl.float32, SUMS)
        for trip in range(trips):
            slot, phase = used % NUM_STAGES, (used // NUM_STAGES) & 1
            mbarrier.wait(ready.index(slot), phase)
            a, b = a_tiles.index(slot), b_tiles.index(slot)
            if COLUMN_MAJOR:
                b = b.permute((1, 0))
            if SWAP:
                a, b = b.permute((1, 0)), a.permute((1, 0))
            if GROUPS > 1:
                a = a.slice(GROUP * HIGH, HIGH, dim=0)
            total = warpgroup_mma(a, b, total, is_async=True)
            total = warpgroup_mma_wait(1, deps=[total])
            if trip > 0:  # the product before this one has been made
                gl.thread_barrier()
                mbarrier.arrive(free.index((used - 1) % NUM_STAGES))
            used += 1
        total = warpgroup_mma_wait(0, deps=[total])
        gl.thread_barrier()
        mbarrier.arrive(free.index((used - 1) % NUM_STAGES))
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        if SWAP:
            col += GROUP * HIGH
        else:
            row += GROUP * HIGH
        _store(outputs, total, row, col, M, N, ACTIVATION, SWAP)


@gluon.jit
def gemm_hopper_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    a_scale_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    COLUMN_MAJOR: gl.constexpr,
    ACTIVATION: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    GROUPS: gl.constexpr,
    SWAP: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    """Compute tiles of which a and b are loaded through descriptors of the host: each program takes one, or every so
    many-th.

    The side of a tile that is the instruction's rows, that of b's columns with SWAP, is 64 for each of GROUPS, or a
    multiple.
    """
    gl.static_assert(HAS_GLUON, "the variant hopper needs upstream Triton 3.6 or newer, which has Gluon")
    a_tiles = gl.allocate_shared_memory(
        a_ptr.dtype, [NUM_STAGES, a_ptr.block_shape[0], a_ptr.block_shape[1]], a_ptr.layout
    )
    b_tiles = gl.allocate_shared_memory(
        b_ptr.dtype, [NUM_STAGES, b_ptr.block_shape[0], b_ptr.block_shape[1]], b_ptr.layout
    )
    ready = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(NUM_STAGES):
        mbarrier.init(ready.index(slot), count=1)
        mbarrier.init(free.index(slot), count=GROUPS)
    tiles, barriers, sizes = (a_tiles, b_tiles), (ready, free), (M, N, K)
    outputs = (out_ptr, bias_ptr, a_scale_ptr, b_scale_ptr)
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    if GROUPS == 1:
        gl.warp_specialize(
            [
                (
                    _multiply,
                    (
                        outputs,
                        tiles,
                        barriers,
                        sizes,
                        FIRST,
                        GROUPS,
                        SWAP,
                        COLUMN_MAJOR,
                        ACTIVATION,
                        BLOCK_M,
                        BLOCK_N,
                        BLOCK_K,
                        GROUP_M,
                        NUM_STAGES,
                    ),
                ),
                (
                    _load,
                    (
                        (a_ptr, b_ptr),
                        tiles,
                        barriers,
                        sizes,
                        COLUMN_MAJOR,
                        BLOCK_M,
                        BLOCK_N,
                        BLOCK_K,
                        GROUP_M,
                        NUM_STAGES,
                    ),
                ),
            ],
            [1],
            [24],
        )
    else:
        gl.warp_specialize(
            [
                (
                    _multiply,
                    (
                        outputs,
                        tiles,
                        barriers,
                        sizes,
                        FIRST,
                        GROUPS,
                        SWAP,
                        COLUMN_MAJOR,
                        ACTIVATION,
                        BLOCK_M,
                        BLOCK_N,
                        BLOCK_K,
                        GROUP_M,
                        NUM_STAGES,
                    ),
                ),
                (
                    _multiply,
                    (
                        outputs,
                        tiles,
                        barriers,
                        sizes,
                        SECOND,
                        GROUPS,
                        SWAP,
                        COLUMN_MAJOR,
                        ACTIVATION,
                        BLOCK_M,
                        BLOCK_N,
                        BLOCK_K,
                        GROUP_M,
                        NUM_STAGES,
                    ),
                ),
                (
                    _load,
                    (
                        (a_ptr, b_ptr),
                        tiles,
                        barriers,
                        sizes,
                        COLUMN_MAJOR,
                        BLOCK_M,
                        BLOCK_N,
                        BLOCK_K,
                        GROUP_M,
                        NUM_STAGES,
                    ),
                ),
            ],
            [4, 1],
            [240, 24],
        )
