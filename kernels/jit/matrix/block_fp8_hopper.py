"""Products of 8-bit floats with block scales in Gluon; see `tilewise.kernels.matrix.block_fp8_gemm` for the spec.

A program computes tiles in turn. One warp loads, through tensor descriptors that the host makes, and two groups of four
warps multiply 64 rows of a tile each. The tensor cores sum a block of K = 128 terms; a group then scales these sums and
adds them to its float32 ones while the other group's products run.

The L2 cache bounds large products: a tile of 256 columns takes a quarter less from it than two of 128. A group computes
such a tile in two parts, one after the other, since its registers hold the sums of one block and part alone.
"""

from tilewise.kernels.jit.matrix.gemm_hopper import HAS_GLUON, _tile_of

try:
    import triton.experimental.gluon.language as gl
    from triton.experimental import gluon
    from triton.experimental.gluon.language.nvidia.hopper import (
        fence_async_shared,
        mbarrier,
        tma,
        warpgroup_mma,
        warpgroup_mma_wait,
    )
except ImportError:  # the kernel is then a function of plain Triton that refuses to compile, saying why
    import triton as gluon
    import triton.language as gl

GROUPS = gl.constexpr(2)

ROWS = gl.constexpr(64)
"""Rows of one instruction's product."""

TERMS = gl.constexpr(128)
"""Terms of K that share scales, and columns of b that do."""


@gluon.jit
def _next(slot, phase, SLOTS: gl.constexpr):
    """Return the slot after this one, and the phase of its barriers, which changes with each round."""
    last = slot == SLOTS - 1
    return gl.where(last, 0, slot + 1), phase ^ last.to(gl.int32)


@gluon.jit
def _load(operands, tiles, barriers, sizes, PARTS: gl.constexpr, GROUP_M: gl.constexpr, NUM_STAGES: gl.constexpr):
    """Load the operands of all of the program's tiles, block by block."""
    a_blocks, b_blocks = operands
    a_tiles, b_tiles = tiles
    ready, free = barriers
    M, N, K = sizes
    BLOCK_M: gl.constexpr = a_blocks.block_shape[0]
    COLS: gl.constexpr = b_blocks.block_shape[0]
    BLOCK_N: gl.constexpr = PARTS * COLS
    slot, phase = gl.to_tensor(0), gl.to_tensor(1)
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        tile_m, tile_n = _tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        for block in range(gl.cdiv(K, TERMS)):
            k = block * TERMS
            mbarrier.wait(free.index(slot), phase)
            for part in gl.static_range(PARTS):
                barrier = ready.index(PARTS * slot + part)
                if part == 0:
                    mbarrier.expect(barrier, a_blocks.block_type.nbytes + b_blocks.block_type.nbytes)
                    tma.async_copy_global_to_shared(a_blocks, [tile_m * BLOCK_M, k], barrier, a_tiles.index(slot))
                else:
                    mbarrier.expect(barrier, b_blocks.block_type.nbytes)
                at = [tile_n * BLOCK_N + part * COLS, k]
                tma.async_copy_global_to_shared(b_blocks, at, barrier, b_tiles.index(PARTS * slot + part))
            slot, phase = _next(slot, phase, NUM_STAGES)


@gluon.jit
def _begin(tiles, barriers, slot, phase, nothing, GROUP: gl.constexpr, PART: gl.constexpr, PARTS: gl.constexpr):
    """Wait for a block's operands and begin to multiply them."""
    a_tiles, b_tiles = tiles
    ready, _ = barriers
    mbarrier.wait(ready.index(PARTS * slot + PART), phase)
    a = a_tiles.index(slot).slice(GROUP * ROWS, ROWS, dim=0)
    b = b_tiles.index(PARTS * slot + PART).permute((1, 0))
    return warpgroup_mma(a, b, nothing, use_acc=False, is_async=True)


@gluon.jit
def _release(barriers, slot):
    _, free = barriers
    gl.thread_barrier()
    mbarrier.arrive(free.index(slot))


@gluon.jit
def _multiply_whole(
    scales, tiles, barriers, slot, phase, blocks, nothing, GROUP: gl.constexpr, NUM_STAGES: gl.constexpr
):
    """Return a tile's sums and the next slot. While a block's sums are scaled, the next block's are made.

    Two blocks make a trip, since ptxas has only these overlap.
    """
    of_rows, of_cols, _ = scales
    total = nothing
    for pair in range(blocks // 2):
        block = 2 * pair
        first = _begin(tiles, barriers, slot, phase, nothing, GROUP, 0, 1)
        scale = gl.load(of_rows + block) * gl.load(of_cols + block)
        second_slot, phase = _next(slot, phase, NUM_STAGES)
        second = _begin(tiles, barriers, second_slot, phase, nothing, GROUP, 0, 1)
        second_scale = gl.load(of_rows + block + 1) * gl.load(of_cols + block + 1)
        sums = warpgroup_mma_wait(1, deps=[first])
        _release(barriers, slot)
        total += sums * scale[:, None]
        sums = warpgroup_mma_wait(0, deps=[second])
        _release(barriers, second_slot)
        total += sums * second_scale[:, None]
        slot, phase = _next(second_slot, phase, NUM_STAGES)
    for block in range(blocks // 2 * 2, blocks):
        running = _begin(tiles, barriers, slot, phase, nothing, GROUP, 0, 1)
        scale = gl.load(of_rows + block) * gl.load(of_cols + block)
        sums = warpgroup_mma_wait(0, deps=[running])
        _release(barriers, slot)
        total += sums * scale[:, None]
        slot, phase = _next(slot, phase, NUM_STAGES)
    return total, slot, phase


@gluon.jit
def _add_part(total, running, scale):
    """Return the total with a part's sums. The instruction that moves it does nothing but keep compilers from putting
    the additions off until the next part's sums exist too, which registers would not hold."""
    sums = warpgroup_mma_wait(0, deps=[running])
    total += sums * scale[:, None]
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [total], gl.float32, is_pure=False, pack=1)


@gluon.jit
def _multiply_parts(
    scales, tiles, barriers, slot, phase, blocks, nothing, GROUP: gl.constexpr, NUM_STAGES: gl.constexpr
):
    """Return the sums of a tile's left and right part, and the next slot."""
    of_rows, of_left, of_right = scales
    left, right = nothing, nothing
    for block in range(blocks):
        running = _begin(tiles, barriers, slot, phase, nothing, GROUP, 0, 2)
        scale, left_scale, right_scale = gl.load(of_rows + block), gl.load(of_left + block), gl.load(of_right + block)
        left = _add_part(left, running, scale * left_scale)
        running = _begin(tiles, barriers, slot, phase, nothing, GROUP, 1, 2)
        right = _add_part(right, running, scale * right_scale)
        _release(barriers, slot)
        slot, phase = _next(slot, phase, NUM_STAGES)
    return left, right, slot, phase


@gluon.jit
def _store(out_blocks, stored, total, row, col):
    """Begin to copy sums to the output, through shared memory from which those before have been copied."""
    tma.store_wait(0)
    gl.thread_barrier()
    stored.store(total.to(out_blocks.dtype))
    fence_async_shared()
    gl.thread_barrier()
    tma.async_copy_shared_to_global(out_blocks, [row, col], stored)


@gluon.jit
def _multiply(
    scale_ptrs,
    out_blocks,
    stored,
    tiles,
    barriers,
    sizes,
    GROUP: gl.constexpr,
    PARTS: gl.constexpr,
    GROUP_M: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    """Compute half of the rows of the program's tiles."""
    a_scale_ptr, b_scale_ptr = scale_ptrs
    M, N, K = sizes
    COLS: gl.constexpr = out_blocks.block_shape[1]
    BLOCK_M: gl.constexpr = GROUPS * ROWS
    BLOCK_N: gl.constexpr = PARTS * COLS
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, COLS, 32])
    nothing = gl.zeros([ROWS, COLS], gl.float32, SUMS)
    blocks, last = gl.cdiv(K, TERMS), gl.cdiv(N, TERMS) - 1
    slot, phase = gl.to_tensor(0), gl.to_tensor(0)
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        tile_m, tile_n = _tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M + GROUP * ROWS, tile_n * BLOCK_N
        rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, SUMS))
        of_cols = b_scale_ptr + col // TERMS * blocks
        of_right = b_scale_ptr + gl.minimum(col // TERMS + 1, last) * blocks
        scales = (a_scale_ptr + gl.minimum(rows, M - 1) * blocks, of_cols, of_right)
        if PARTS == 1:
            total, slot, phase = _multiply_whole(
                scales, tiles, barriers, slot, phase, blocks, nothing, GROUP, NUM_STAGES
            )
            _store(out_blocks, stored.index(GROUP), total, row, col)
        else:
            left, right, slot, phase = _multiply_parts(
                scales, tiles, barriers, slot, phase, blocks, nothing, GROUP, NUM_STAGES
            )
            _store(out_blocks, stored.index(GROUP), left, row, col)
            _store(out_blocks, stored.index(GROUP), right, row, col + COLS)
    tma.store_wait(0)


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

    a, M x K, b, stored as N x K, and the output are descriptors. BLOCK_M is 128, BLOCK_N 64, 128 or 256; the blocks of
    b and the output have at most 128 of these columns.
    """
    gl.static_assert(HAS_GLUON, "the variant hopper needs upstream Triton 3.6 or newer, which has Gluon")
    gl.static_assert(BLOCK_M == GROUPS * ROWS, "the variant hopper takes 128 rows per program")
    COLS: gl.constexpr = b_ptr.block_shape[0]
    PARTS: gl.constexpr = BLOCK_N // COLS
    a_tiles = gl.allocate_shared_memory(a_ptr.dtype, [NUM_STAGES, BLOCK_M, TERMS], a_ptr.layout)
    b_tiles = gl.allocate_shared_memory(b_ptr.dtype, [NUM_STAGES * PARTS, COLS, TERMS], b_ptr.layout)
    stored = gl.allocate_shared_memory(out_ptr.dtype, [GROUPS, ROWS, COLS], out_ptr.layout)
    ready = gl.allocate_shared_memory(gl.int64, [NUM_STAGES * PARTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(NUM_STAGES * PARTS):
        mbarrier.init(ready.index(slot), count=1)
    for slot in gl.static_range(NUM_STAGES):
        mbarrier.init(free.index(slot), count=GROUPS)
    tiles, barriers, sizes, scales = (a_tiles, b_tiles), (ready, free), (M, N, K), (a_scale_ptr, b_scale_ptr)
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    gl.warp_specialize(
        [
            (_multiply, (scales, out_ptr, stored, tiles, barriers, sizes, FIRST, PARTS, GROUP_M, NUM_STAGES)),
            (_multiply, (scales, out_ptr, stored, tiles, barriers, sizes, SECOND, PARTS, GROUP_M, NUM_STAGES)),
            (_load, ((a_ptr, b_ptr), tiles, barriers, sizes, PARTS, GROUP_M, NUM_STAGES)),
        ],
        [4, 1],
        [240, 24],
    )
