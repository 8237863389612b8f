"""Products of 8-bit floats with block scales in Gluon; see `tilewise.kernels.matrix.block_fp8_gemm` for the spec.

A program computes tiles in turn. Two groups of warps multiply half a tile's rows each, and one warp loads for both. The
tensor cores sum a block of K = 128 terms; a group then scales these sums and adds them to its float32 ones while the
other group's products run.
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

ROWS = gl.constexpr(64)
"""Rows of one instruction's product."""

UNROLLED = gl.constexpr(2)
"""Blocks of which one is multiplied while the one before is scaled; ptxas allows that only in one loop's trip."""

TERMS = gl.constexpr(128)
"""Terms of K that share scales, and columns of b that do."""


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
    a_ptr,
    b_ptr,
    tiles,
    barriers,
    M,
    N,
    K,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    """Load the operands of all of the program's tiles, block by block."""
    a_tiles, b_tiles = tiles
    ready, free = barriers
    a_source = tma.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [ROWS, TERMS], a_tiles.type.layout)
    b_source = tma.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, TERMS], b_tiles.type.layout)
    trips = gl.cdiv(K, TERMS)
    loaded = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        tile_m, tile_n = _tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        for trip in range(trips):
            slot, phase = loaded % NUM_STAGES, (loaded // NUM_STAGES) & 1
            mbarrier.wait(free.index(slot), phase ^ 1)
            mbarrier.expect(ready.index(slot), 2 * a_source.block_type.nbytes + b_source.block_type.nbytes)
            for half in gl.static_range(2):
                at = [tile_m * BLOCK_M + half * ROWS, trip * TERMS]
                tma.async_copy_global_to_shared(a_source, at, ready.index(slot), a_tiles.index(2 * slot + half))
            at = [tile_n * BLOCK_N, trip * TERMS]
            tma.async_copy_global_to_shared(b_source, at, ready.index(slot), b_tiles.index(slot))
            loaded += 1


@gluon.jit
def _store(out_ptr, total, row, col, M, N, BLOCK_N: gl.constexpr):
    OUT: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    out = gl.convert_layout(total.to(out_ptr.dtype.element_ty), OUT)
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, OUT))
    cols = col + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, OUT))
    at = out_ptr + rows[:, None].to(gl.int64) * N + cols[None, :]
    gl.store(at, out, mask=(rows < M)[:, None] & (cols < N)[None, :])


@gluon.jit
def _product(tiles, barriers, used, GROUP: gl.constexpr, NUM_STAGES: gl.constexpr, nothing):
    """Wait for a block's operands and begin to multiply them."""
    a_tiles, b_tiles = tiles
    ready, _ = barriers
    slot, phase = used % NUM_STAGES, (used // NUM_STAGES) & 1
    mbarrier.wait(ready.index(slot), phase)
    a, b = a_tiles.index(2 * slot + GROUP), b_tiles.index(slot).permute((1, 0))
    return warpgroup_mma(a, b, nothing, use_acc=False, is_async=True)


@gluon.jit
def _release(barriers, used, NUM_STAGES: gl.constexpr):
    _, free = barriers
    gl.thread_barrier()
    mbarrier.arrive(free.index(used % NUM_STAGES))


@gluon.jit
def _multiply(
    a_scale_ptr,
    b_scale_ptr,
    out_ptr,
    tiles,
    barriers,
    M,
    N,
    K,
    GROUP: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    """Compute half of the rows of the program's tiles. While a block's sums are scaled, the next block's are made."""
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 32])
    nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, SUMS)
    blocks = gl.cdiv(K, TERMS)
    used = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        tile_m, tile_n = _tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M + GROUP * ROWS, tile_n * BLOCK_N
        rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, SUMS))
        of_rows, of_cols = a_scale_ptr + gl.minimum(rows, M - 1) * blocks, b_scale_ptr + col // TERMS * blocks
        total = gl.zeros([ROWS, BLOCK_N], gl.float32, SUMS)
        for several in range(blocks // UNROLLED):
            block = several * UNROLLED
            running = _product(tiles, barriers, used, GROUP, NUM_STAGES, nothing)
            scale = gl.load(of_rows + block) * gl.load(of_cols + block)
            for next_block in gl.static_range(1, UNROLLED):
                begun = _product(tiles, barriers, used + next_block, GROUP, NUM_STAGES, nothing)
                next_scale = gl.load(of_rows + block + next_block) * gl.load(of_cols + block + next_block)
                sums = warpgroup_mma_wait(1, deps=[running])
                _release(barriers, used + next_block - 1, NUM_STAGES)
                total += sums * scale[:, None]
                running, scale = begun, next_scale
            sums = warpgroup_mma_wait(0, deps=[running])
            _release(barriers, used + UNROLLED - 1, NUM_STAGES)
            total += sums * scale[:, None]
            used += UNROLLED
        for block in range(blocks // UNROLLED * UNROLLED, blocks):
            running = _product(tiles, barriers, used, GROUP, NUM_STAGES, nothing)
            scale = gl.load(of_rows + block) * gl.load(of_cols + block)
            sums = warpgroup_mma_wait(0, deps=[running])
            _release(barriers, used, NUM_STAGES)
            total += sums * scale[:, None]
            used += 1
        _store(out_ptr, total, row, col, M, N, BLOCK_N)


@gluon.jit
def block_fp8_gemm_hopper_kernel(
    a_ptr,
    b_ptr,
    a_scale_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    """Compute `out[m, n] = sum over blocks of k of a_scale[m, k / 128] * b_scale[n / 128, k / 128] * (a @ b)`.

    a is M x K, b is stored as N x K, K is a multiple of 16. BLOCK_M is 128, BLOCK_N at most 128.
    """
    gl.static_assert(HAS_GLUON, "the variant hopper needs upstream Triton 3.6 or newer, which has Gluon")
    gl.static_assert(BLOCK_M == 2 * ROWS, "the variant hopper takes 128 rows per program")
    A_TILE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, TERMS], a_ptr.dtype.element_ty)
    B_TILE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, TERMS], b_ptr.dtype.element_ty)
    a_tiles = gl.allocate_shared_memory(a_ptr.dtype.element_ty, [2 * NUM_STAGES, ROWS, TERMS], A_TILE)
    b_tiles = gl.allocate_shared_memory(b_ptr.dtype.element_ty, [NUM_STAGES, BLOCK_N, TERMS], B_TILE)
    ready = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(NUM_STAGES):
        mbarrier.init(ready.index(slot), count=1)
        mbarrier.init(free.index(slot), count=2)
    tiles, barriers = (a_tiles, b_tiles), (ready, free)
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    gl.warp_specialize(
        [
            (
                _multiply,
                (
                    a_scale_ptr,
                    b_scale_ptr,
                    out_ptr,
                    tiles,
                    barriers,
                    M,
                    N,
                    K,
                    FIRST,
                    BLOCK_M,
                    BLOCK_N,
                    GROUP_M,
                    NUM_STAGES,
                ),
            ),
            (
                _multiply,
                (
                    a_scale_ptr,
                    b_scale_ptr,
                    out_ptr,
                    tiles,
                    barriers,
                    M,
                    N,
                    K,
                    SECOND,
                    BLOCK_M,
                    BLOCK_N,
                    GROUP_M,
                    NUM_STAGES,
                ),
            ),
            (_load, (a_ptr, b_ptr, tiles, barriers, M, N, K, BLOCK_M, BLOCK_N, GROUP_M, NUM_STAGES)),
        ],
        [4, 1],
        [240, 24],
    )
