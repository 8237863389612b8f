"""Attention for NVIDIA Hopper in Gluon; see `tilewise.kernels.attention.flash` for the spec, `flash.py` for the method.

A program has three groups of warps: two compute 64 queries each, and one warp loads the keys and values of both. Each
group multiplies a block's queries and keys while the product of the block before with its values is running, and
computes the block's weights while that product runs on. The groups wait for each other only through the tiles they
share, so one's exponentials overlap the other's products too.
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

LOWEST = gl.constexpr(-3.4028234663852886e38)
LOG2_E = gl.constexpr(1.4426950408889634)
ROWS = gl.constexpr(64)
"""Queries of one group of warps."""


@gluon.jit
def _load(
    q_ptr,
    k_ptr,
    v_ptr,
    tiles,
    barriers,
    row,
    blocks,
    Q,
    K,
    stride_q,
    stride_k,
    D: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    """Load the queries from `row` on, then the blocks of keys and values from the last to the first."""
    q_tiles, k_tiles, v_tiles = tiles
    K_TILE: gl.constexpr = k_tiles.type.layout
    q_source = tma.make_tensor_descriptor(q_ptr, [Q, D], [stride_q, 1], [ROWS, BLOCK_D], q_tiles.type.layout)
    stated = gl.maximum(K, 1)
    k_source = tma.make_tensor_descriptor(k_ptr, [stated, D], [stride_k, 1], [BLOCK_N, BLOCK_D], K_TILE)
    v_source = tma.make_tensor_descriptor(v_ptr, [stated, D], [stride_k, 1], [BLOCK_N, BLOCK_D], K_TILE)
    q_ready, k_ready, v_ready, k_free, v_free = barriers
    mbarrier.expect(q_ready, 2 * q_source.block_type.nbytes)
    tma.async_copy_global_to_shared(q_source, [row, 0], q_ready, q_tiles.index(0))
    tma.async_copy_global_to_shared(q_source, [row + ROWS, 0], q_ready, q_tiles.index(1))
    for trip in range(blocks):
        slot, phase = trip % NUM_STAGES, (trip // NUM_STAGES) & 1
        # A tensor of no rows cannot be described: where there are no keys, the load begins behind the one row stated.
        start = gl.where(K > 0, (blocks - 1 - trip) * BLOCK_N, 1)
        mbarrier.wait(k_free.index(slot), phase ^ 1)
        mbarrier.expect(k_ready.index(slot), k_source.block_type.nbytes)
        tma.async_copy_global_to_shared(k_source, [start, 0], k_ready.index(slot), k_tiles.index(slot))
        mbarrier.wait(v_free.index(slot), phase ^ 1)
        mbarrier.expect(v_ready.index(slot), v_source.block_type.nbytes)
        tma.async_copy_global_to_shared(v_source, [start, 0], v_ready.index(slot), v_tiles.index(slot))


@gluon.jit
def _weights(scores, peak, total, factor):
    """Return a block's weights relative to the new maximum, that maximum, the new sum, and the old sum's factor."""
    higher = gl.maximum(peak, gl.max(scores, axis=1) * factor)
    weights = gl.exp2(scores * factor - higher[:, None])
    shrink = gl.exp2(peak - higher)
    return weights, higher, total * shrink + gl.sum(weights, axis=1), shrink


@gluon.jit
def _seen(scores, start, rows, K, offset, CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr, LAYOUT: gl.constexpr):
    keys = start + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, LAYOUT))
    seen = (keys < K)[None, :]
    if CAUSAL:
        seen = seen & (keys[None, :] <= rows[:, None] + offset)
    return gl.where(seen, scores, float("-inf"))


@gluon.jit
def _attend(
    out_ptr,
    tiles,
    barriers,
    row,
    blocks,
    Q,
    K,
    stride,
    factor,
    GROUP: gl.constexpr,
    D: gl.constexpr,
    CAUSAL: gl.constexpr,
    FITS_N: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    q_tiles, k_tiles, v_tiles = tiles
    q_ready, k_ready, v_ready, k_free, v_free = barriers
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16]
    )
    VALUES: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_D, 16]
    )
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=VALUES, k_width=2)
    offset = K - Q
    row += GROUP * ROWS
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, SCORES))
    seen_by_all = gl.minimum(K, row + 1 + offset) if CAUSAL else K
    nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, SCORES)
    peak = gl.full([ROWS], LOWEST, gl.float32, gl.SliceLayout(1, SCORES))
    total = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, SCORES))
    acc = gl.zeros([ROWS, BLOCK_D], gl.float32, VALUES)
    q = q_tiles.index(GROUP)

    mbarrier.wait(q_ready, 0)
    mbarrier.wait(k_ready.index(0), 0)
    scores = warpgroup_mma(q, k_tiles.index(0).permute((1, 0)), nothing, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=[scores])
    gl.thread_barrier()
    mbarrier.arrive(k_free.index(0))
    if CAUSAL or not FITS_N:
        scores = _seen(scores, (blocks - 1) * BLOCK_N, rows, K, offset, CAUSAL, BLOCK_N, SCORES)
    weights, peak, total, shrink = _weights(scores, peak, total, factor)
    bits = gl.convert_layout(weights.to(q.dtype), WEIGHTS)

    for trip in range(1, blocks):
        slot, phase = trip % NUM_STAGES, (trip // NUM_STAGES) & 1
        before, before_phase = (trip - 1) % NUM_STAGES, ((trip - 1) // NUM_STAGES) & 1
        start = (blocks - 1 - trip) * BLOCK_N
        mbarrier.wait(k_ready.index(slot), phase)
        product = warpgroup_mma(q, k_tiles.index(slot).permute((1, 0)), nothing, use_acc=False, is_async=True)
        mbarrier.wait(v_ready.index(before), before_phase)
        running = warpgroup_mma(bits, v_tiles.index(before), acc, is_async=True)
        scores = warpgroup_mma_wait(1, deps=[product])
        gl.thread_barrier()
        mbarrier.arrive(k_free.index(slot))
        if CAUSAL:
            if start + BLOCK_N > seen_by_all:
                scores = _seen(scores, start, rows, K, offset, CAUSAL, BLOCK_N, SCORES)
        weights, peak, total, shrink = _weights(scores, peak, total, factor)
        acc, bits = warpgroup_mma_wait(0, deps=[running, bits])
        gl.thread_barrier()
        mbarrier.arrive(v_free.index(before))
        acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, VALUES))[:, None]
        bits = gl.convert_layout(weights.to(q.dtype), WEIGHTS)

    last = blocks - 1
    mbarrier.wait(v_ready.index(last % NUM_STAGES), (last // NUM_STAGES) & 1)
    running = warpgroup_mma(bits, v_tiles.index(last % NUM_STAGES), acc, is_async=True)
    acc, bits = warpgroup_mma_wait(0, deps=[running, bits])
    share = 1.0 / gl.where(total > 0, total, 1.0)
    acc = acc * gl.convert_layout(share, gl.SliceLayout(1, VALUES))[:, None]
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, VALUES))
    cols = gl.arange(0, BLOCK_D, layout=gl.SliceLayout(0, VALUES))
    at = out_ptr + rows[:, None].to(gl.int64) * stride + cols[None, :]
    gl.store(at, acc.to(out_ptr.dtype.element_ty), mask=(rows < Q)[:, None] & (cols < D)[None, :])


@gluon.jit
def _sequence_of(block, starts_ptr, B, BLOCK_M: gl.constexpr):
    """Return the packed sequence to which a block of queries belongs, as `flash.py` does."""
    low = block * 0
    high = low + B
    while high - low > 1:
        middle = (low + high) // 2
        begun = gl.load(starts_ptr + middle) // BLOCK_M + middle <= block
        low = gl.where(begun, middle, low)
        high = gl.where(begun, high, middle)
    return low


@gluon.jit
def flash_attention_hopper_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    q_starts_ptr,
    k_starts_ptr,
    out_ptr,
    B,
    H,
    HKV,
    Q,
    K,
    SCALE,
    D: gl.constexpr,
    CAUSAL: gl.constexpr,
    PACKED: gl.constexpr,
    FITS_N: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    """Attention as in `flash.py`'s `flash_attention_kernel`, for D a multiple of 8."""
    gl.static_assert(HAS_GLUON, "the variant hopper needs upstream Triton 3.6 or newer, which has Gluon")
    gl.static_assert(BLOCK_M == 2 * ROWS, "the variant hopper takes 128 queries per program")
    program = gl.program_id(0)
    count = B * Q // BLOCK_M + B if PACKED else gl.cdiv(Q, BLOCK_M)
    if CAUSAL:
        head, line = program % H, program // H
        block, batch = count - 1 - line % count, line // count
    else:
        block, line = program % count, program // count
        head, batch = line % H, line // H
    if PACKED:
        batch = _sequence_of(block, q_starts_ptr, B, BLOCK_M)
        q_start, k_start = gl.load(q_starts_ptr + batch), gl.load(k_starts_ptr + batch)
        q_size = gl.load(q_starts_ptr + batch + 1) - q_start
        k_size = gl.load(k_starts_ptr + batch + 1) - k_start
        block -= q_start // BLOCK_M + batch
        q_start, k_start = q_start.to(gl.int64), k_start.to(gl.int64)
    else:
        q_start, k_start = batch.to(gl.int64) * Q, batch.to(gl.int64) * K
        q_size, k_size = Q, K
    q_at, k_at = (q_start * H + head) * D, (k_start * HKV + head // (H // HKV)) * D
    row = block * BLOCK_M
    if row < q_size:
        dtype: gl.constexpr = q_ptr.dtype.element_ty
        Q_TILE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, BLOCK_D], dtype)
        K_TILE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_D], dtype)
        stride_q, stride_k = H * D, HKV * D
        q_tiles = gl.allocate_shared_memory(dtype, [2, ROWS, BLOCK_D], Q_TILE)
        k_tiles = gl.allocate_shared_memory(dtype, [NUM_STAGES, BLOCK_N, BLOCK_D], K_TILE)
        v_tiles = gl.allocate_shared_memory(dtype, [NUM_STAGES, BLOCK_N, BLOCK_D], K_TILE)
        q_ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        k_ready = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
        v_ready = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
        k_free = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
        v_free = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
        mbarrier.init(q_ready, count=1)
        for slot in gl.static_range(NUM_STAGES):
            mbarrier.init(k_ready.index(slot), count=1)
            mbarrier.init(v_ready.index(slot), count=1)
            mbarrier.init(k_free.index(slot), count=2)
            mbarrier.init(v_free.index(slot), count=2)
        seen_by_any = gl.minimum(k_size, row + BLOCK_M + k_size - q_size) if CAUSAL else k_size
        blocks = gl.maximum(gl.cdiv(seen_by_any, BLOCK_N), 1)
        tiles = (q_tiles, k_tiles, v_tiles)
        barriers = (q_ready, k_ready, v_ready, k_free, v_free)
        factor = SCALE * LOG2_E
        FIRST: gl.constexpr = 0
        SECOND: gl.constexpr = 1
        out = out_ptr + q_at
        gl.warp_specialize(
            [
                (
                    _attend,
                    (
                        out,
                        tiles,
                        barriers,
                        row,
                        blocks,
                        q_size,
                        k_size,
                        stride_q,
                        factor,
                        FIRST,
                        D,
                        CAUSAL,
                        FITS_N,
                        BLOCK_N,
                        BLOCK_D,
                        NUM_STAGES,
                    ),
                ),
                (
                    _attend,
                    (
                        out,
                        tiles,
                        barriers,
                        row,
                        blocks,
                        q_size,
                        k_size,
                        stride_q,
                        factor,
                        SECOND,
                        D,
                        CAUSAL,
                        FITS_N,
                        BLOCK_N,
                        BLOCK_D,
                        NUM_STAGES,
                    ),
                ),
                (
                    _load,
                    (
                        q_ptr + q_at,
                        k_ptr + k_at,
                        v_ptr + k_at,
                        tiles,
                        barriers,
                        row,
                        blocks,
                        q_size,
                        k_size,
                        stride_q,
                        stride_k,
                        D,
                        BLOCK_N,
                        BLOCK_D,
                        NUM_STAGES,
                    ),
                ),
            ],
            [4, 1],
            [240, 24],
        )
