"""Gating of a mixture of experts in Gluon, a row per thread; see `tilewise.kernels.vector.topk_gating` for the spec.

A thread has a row, so that nothing is exchanged between threads: it sorts runs of logits by a network of comparisons
and merges them, two runs at a time, keeping the larger half. A logit and its expert are one number, which orders them
as the kernel has to: by the logit, and equal logits by the smaller expert.
"""

try:
    import triton.experimental.gluon.language as gl
    from triton.experimental import gluon

    HAS_GLUON = gl.constexpr(True)
except ImportError:  # the kernel is then a function of plain Triton that refuses to compile, saying why
    import triton as gluon
    import triton.language as gl

    HAS_GLUON = gl.constexpr(False)


EXPERT_BITS = gl.constexpr(16)
"""Bits of a 32-bit integer key that hold the expert, below those of a 16-bit logit."""

PLACE_BITS = gl.constexpr(7)
"""Bits of a float32 key that hold the place in a part, below those of a 16-bit logit: together a float's 23."""

ZERO = gl.constexpr(0x4B400000)
"""The bits of 1.5 * 2^23: this and an integer from -2^22 to 2^22 - 1 are the bits of that sum as a float32."""


@gluon.jit
def _ordering(x):
    """Return integers in the order of 16-bit floats. A negative zero becomes a positive one, which it equals, by an
    addition, and the bits of negative floats are turned round; both are done to two numbers at a time."""
    TYPE: gl.constexpr = "bf16x2" if x.dtype.name == "bf16" else "f16x2"
    ONE: gl.constexpr = "0x3f803f80" if x.dtype.name == "bf16" else "0x3c003c00"
    ADD_ZERO: gl.constexpr = "mov.b32 one, " + ONE + "; fma.rn." + TYPE + " sum, $1, one, zero;"
    TURN: gl.constexpr = "prmt.b32 turn, sum, 0, 0xbb99; and.b32 turn, turn, 0x7fff7fff; xor.b32 $0, sum, turn;"
    return gl.inline_asm_elementwise(
        "{ .reg .b32 one, zero, sum, turn; mov.b32 zero, 0; " + ADD_ZERO + TURN + " }",
        "=r,r",
        [x],
        dtype=gl.int16,
        is_pure=True,
        pack=2,
    )


@gluon.jit
def _keys(x, place):
    """Return numbers in the order of a part's logits and, of equal ones, of falling places in it.

    Those of 16-bit floats are integers held exactly by float32, of which a GPU finds the larger and the smaller faster
    than of integers. Those of float32 are 64-bit integers.
    """
    if x.dtype.primitive_bitwidth == 16:
        below = ZERO + 2**PLACE_BITS - 1 - place
        keys = (_ordering(x).to(gl.int32) * 2**PLACE_BITS + below).to(gl.float32, bitcast=True)
    else:
        bits = (x + 0.0).to(gl.int32, bitcast=True)
        bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        keys = (bits.to(gl.int64) << 32) | (0x7FFFFFFF - place).to(gl.int64)
    return keys


@gluon.jit
def _numbered(keys, first):
    """Return the integer keys of logits and experts, given those of a part that begins with the expert `first`."""
    numbered = ()
    for at in gl.static_range(len(keys)):
        if keys[at].dtype.name == "fp32":
            key = keys[at].to(gl.int32, bitcast=True) - ZERO
            below = (key & (2**PLACE_BITS - 1)) + (2**EXPERT_BITS - 2**PLACE_BITS) - first
            numbered = numbered + (((key >> PLACE_BITS) << EXPERT_BITS) | below,)
        else:
            numbered = numbered + (keys[at] - first,)
    return numbered


@gluon.jit
def _logits_and_experts(keys, dtype: gl.constexpr):
    """Return the logits, as float32, and the experts that integer keys hold."""
    if keys.dtype.primitive_bitwidth == 32:
        bits = keys >> EXPERT_BITS
        bits = (bits ^ ((bits >> 31) & 0x7FFF)).to(gl.int16)
        expert = 2**EXPERT_BITS - 1 - (keys & (2**EXPERT_BITS - 1))
    else:
        bits = (keys >> 32).to(gl.int32)
        bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        expert = 0x7FFFFFFF - (keys & 0x7FFFFFFF).to(gl.int32)
    return bits.to(dtype, bitcast=True).to(gl.float32), expert


@gluon.jit
def _ordered(values, FIRST: gl.constexpr, SECOND: gl.constexpr, MANY: gl.constexpr):
    """Return the tuple with the larger of two values first.

    MANY: the smaller of two floats comes from two subtractions, exact for keys. They take longer than a minimum, but
    the units that compare, at half the rate of additions, are what many threads wait for.
    """
    high = gl.maximum(values[FIRST], values[SECOND])
    if MANY and values[FIRST].dtype.name == "fp32":
        low = values[FIRST] - (high - values[SECOND])
    else:
        low = gl.minimum(values[FIRST], values[SECOND])
    ordered = ()
    for at in gl.static_range(len(values)):
        if at == FIRST:
            ordered = ordered + (high,)
        elif at == SECOND:
            ordered = ordered + (low,)
        else:
            ordered = ordered + (values[at],)
    return ordered


@gluon.jit
def _merge_step(values, RUN: gl.constexpr, APART: gl.constexpr, MANY: gl.constexpr):
    """Order those pairs of values that lie APART and in one pair of runs, as Batcher's merging of odd and even does."""
    for at in gl.static_range(APART % RUN, len(values) - APART):
        if (at - APART % RUN) % (2 * APART) < APART and at // (2 * RUN) == (at + APART) // (2 * RUN):
            values = _ordered(values, at, at + APART, MANY)
    return values


@gluon.jit
def _sorted(values, LOG: gl.constexpr, MANY: gl.constexpr):
    """Sort 2^LOG values, the largest first."""
    for log_run in gl.static_range(LOG):
        for log_part in gl.static_range(log_run + 1):
            values = _merge_step(values, 2**log_run, 2 ** (log_run - log_part), MANY)
    return values


@gluon.jit
def _clean_step(values, APART: gl.constexpr, MANY: gl.constexpr):
    """Order the pairs of values that lie APART, as sorting what first rises and then falls does."""
    for at in gl.static_range(len(values)):
        if at % (2 * APART) < APART:
            values = _ordered(values, at, at + APART, MANY)
    return values


@gluon.jit
def _merged(first, second, LOG: gl.constexpr, MANY: gl.constexpr):
    """Return the larger half of two sorted tuples of 2^LOG values, sorted."""
    larger = ()
    for at in gl.static_range(2**LOG):
        larger = larger + (gl.maximum(first[at], second[2**LOG - 1 - at]),)
    for log_part in gl.static_range(LOG):
        larger = _clean_step(larger, 2 ** (LOG - 1 - log_part), MANY)
    return larger


@gluon.jit
def _half(values, ODD: gl.constexpr):
    """Return every second element of each tensor's last axis: the odd ones, or the even ones."""
    halves = ()
    for at in gl.static_range(len(values)):
        pairs = gl.reshape(values[at], [values[at].shape[0], values[at].shape[1] // 2, 2])
        halves = halves + (gl.split(pairs)[1 if ODD else 0],)
    return halves


@gluon.jit
def _largest(keys, LOG: gl.constexpr, LOG_RUNS: gl.constexpr, MANY: gl.constexpr):
    """Return the 2^LOG largest of each row of keys, [rows, 2^(LOG + LOG_RUNS)]: a sorted tuple of tensors [rows, 1]."""
    runs = (keys,)
    for _ in gl.static_range(LOG):
        runs = _half(runs, False) + _half(runs, True)
    runs = _sorted(runs, LOG, MANY)
    for _ in gl.static_range(LOG_RUNS):
        runs = _merged(_half(runs, False), _half(runs, True), LOG, MANY)
    return runs


@gluon.jit
def _joined(values):
    """Join each value of the first half of a tuple with its fellow of the second half."""
    joined = ()
    for at in gl.static_range(len(values) // 2):
        joined = joined + (gl.join(values[at], values[at + len(values) // 2]),)
    return joined


@gluon.jit
def _columns(values, LOG: gl.constexpr):
    """Return the tensor whose columns are the 2^LOG tensors of a tuple, each [rows, 1]."""
    for _ in gl.static_range(LOG):
        values = _joined(values)
    return gl.reshape(values[0], [values[0].shape[0], 2**LOG])


@gluon.jit
def _part(x_ptr, start, first, M, E, READ: gl.constexpr, ROW: gl.constexpr, ROWS: gl.constexpr, PART: gl.constexpr):
    """Return the logits of ROWS rows and PART experts in the layout ROW, loaded in the layout READ. Others are -inf."""
    row = start + gl.arange(0, ROWS, layout=gl.SliceLayout(1, READ))[:, None]
    expert = first + gl.arange(0, PART, layout=gl.SliceLayout(0, READ))[None, :]
    x = gl.load(x_ptr + row * E + expert, mask=(row < M) & (expert < E), other=float("-inf"))
    return gl.convert_layout(x, ROW)


@gluon.jit
def topk_gating_sorted_kernel(
    x_ptr,
    weight_ptr,
    id_ptr,
    M,
    E,
    TOPK,
    CHOSEN: gl.constexpr,
    FITS_E: gl.constexpr,
    RENORMALISE: gl.constexpr,
    LOG_K: gl.constexpr,
    LOG_RUNS: gl.constexpr,
    BLOCK_SIZE_M: gl.constexpr,
    SUB_BLOCK_SIZE_M: gl.constexpr,
    BLOCK_SIZE_E: gl.constexpr,
    MANY: gl.constexpr,
    NUM_STAGES: gl.constexpr = 1,
):
    """Store the CHOSEN = TOPK largest of softmax(x[m]) over E experts, in order, and their experts. RENORMALISE:
    divided by their sum.

    2^LOG_K >= TOPK, BLOCK_SIZE_E = 2^(LOG_K + LOG_RUNS) experts are sorted at a time (`FITS_E`: all), BLOCK_SIZE_M =
    SUB_BLOCK_SIZE_M is 32 for each warp, and NUM_STAGES is 1. MANY: there are so many rows that they wait for the
    GPU's units and not for latency. The threads of a warp then load rows together and hand them out through shared
    memory; otherwise each loads its own.
    """
    gl.static_assert(HAS_GLUON, "topk_gating_sorted_kernel needs a Triton with triton.experimental.gluon")
    WARPS: gl.constexpr = gl.num_warps()
    ROW: gl.constexpr = gl.BlockedLayout([1, BLOCK_SIZE_E], [32, 1], [WARPS, 1], [1, 0])
    OUT: gl.constexpr = gl.BlockedLayout([1, 2**LOG_K], [32, 1], [WARPS, 1], [1, 0])
    VECTOR: gl.constexpr = min(BLOCK_SIZE_E, 128 // x_ptr.dtype.element_ty.primitive_bitwidth)
    ACROSS: gl.constexpr = BLOCK_SIZE_E // VECTOR
    TOGETHER: gl.constexpr = gl.BlockedLayout([1, VECTOR], [32 // ACROSS, ACROSS], [WARPS, 1], [1, 0])
    READ: gl.constexpr = TOGETHER if MANY else ROW
    start = gl.program_id(0).to(gl.int64) * BLOCK_SIZE_M
    place = gl.arange(0, BLOCK_SIZE_E, layout=gl.SliceLayout(0, ROW))[None, :]
    x = _part(x_ptr, start, 0, M, E, READ, ROW, BLOCK_SIZE_M, BLOCK_SIZE_E)
    best = _numbered(_largest(_keys(x, place), LOG_K, LOG_RUNS, MANY), 0)
    if not RENORMALISE:
        peak = gl.max(x.to(gl.float32), axis=1)
        of_all = gl.sum(gl.exp(x.to(gl.float32) - peak[:, None]), axis=1)
    if not FITS_E:
        for first in range(BLOCK_SIZE_E, E, BLOCK_SIZE_E):
            x = _part(x_ptr, start, first, M, E, READ, ROW, BLOCK_SIZE_M, BLOCK_SIZE_E)
            best = _merged(best, _numbered(_largest(_keys(x, place), LOG_K, LOG_RUNS, MANY), first), LOG_K, MANY)
            if not RENORMALISE:
                higher = gl.maximum(peak, gl.max(x.to(gl.float32), axis=1))
                of_all = of_all * gl.exp(peak - higher) + gl.sum(gl.exp(x.to(gl.float32) - higher[:, None]), axis=1)
                peak = higher
    logits, experts = _logits_and_experts(gl.convert_layout(_columns(best, LOG_K), OUT), x.dtype)
    place = gl.arange(0, 2**LOG_K, layout=gl.SliceLayout(0, OUT))[None, :]
    weight = gl.where(place < CHOSEN, gl.exp(logits - gl.max(logits, axis=1)[:, None]), 0.0)
    total = gl.sum(weight, axis=1)
    if not RENORMALISE:
        total = gl.convert_layout(of_all, gl.SliceLayout(1, OUT))
    row = start + gl.arange(0, BLOCK_SIZE_M, layout=gl.SliceLayout(1, OUT))
    out = row[:, None] * TOPK + place
    inside = (row < M)[:, None] & (place < CHOSEN)
    gl.store(weight_ptr + out, weight * (1.0 / total)[:, None], mask=inside)
    gl.store(id_ptr + out, experts, mask=inside)
