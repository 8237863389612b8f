"""Gating of a mixture of experts in Gluon, a row per thread; see `tilewise.kernels.vector.topk_gating` for the spec.

A thread loads a row, so that nothing is exchanged between threads: it sorts runs of logits by a network of comparisons
and merges them, two runs at a time, keeping the larger half. A logit and its expert are one integer, which
orders them as the kernel has to: by the logit, and equal logits by the smaller expert.
"""

try:
    import triton.experimental.gluon.language as gl
    from triton.experimental import gluon

    HAS_GLUON = gl.constexpr(True)
except ImportError:  # the kernel is then a function of plain Triton that refuses to compile, saying why
    import triton as gluon
    import triton.language as gl

    HAS_GLUON = gl.constexpr(False)


EXPERT_BITS = gl.constexpr(13)
"""Bits of a float32 that no 16-bit float uses, and that hold the expert in the key of one."""


@gluon.jit
def _keys(x, expert):
    """Return integers in the order of the logits and, of equal ones, of falling experts.

    Those of 16-bit floats have 32 bits, those of float32 64. The bits of negative floats are turned round, and a
    negative zero becomes a positive one, which it equals.
    """
    bits = (x.to(gl.float32) + 0.0).to(gl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    if x.dtype.primitive_bitwidth == 16:
        keys = (bits & -(2**EXPERT_BITS)) | (2**EXPERT_BITS - 1 - expert)
    else:
        keys = (bits.to(gl.int64) << 32) | (0x7FFFFFFF - expert).to(gl.int64)
    return keys


@gluon.jit
def _logits_and_experts(keys):
    if keys.dtype.primitive_bitwidth == 32:
        bits = keys | (2**EXPERT_BITS - 1)
        expert = 2**EXPERT_BITS - 1 - (keys & (2**EXPERT_BITS - 1))
        bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        bits = bits & -(2**EXPERT_BITS)
    else:
        bits = (keys >> 32).to(gl.int32)
        bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        expert = 0x7FFFFFFF - (keys & 0x7FFFFFFF).to(gl.int32)
    return bits.to(gl.float32, bitcast=True), expert


@gluon.jit
def _ordered(values, FIRST: gl.constexpr, SECOND: gl.constexpr):
    """Return the tuple with the larger of two values first."""
    ordered = ()
    for at in gl.static_range(len(values)):
        if at == FIRST:
            ordered = ordered + (gl.maximum(values[FIRST], values[SECOND]),)
        elif at == SECOND:
            ordered = ordered + (gl.minimum(values[FIRST], values[SECOND]),)
        else:
            ordered = ordered + (values[at],)
    return ordered


@gluon.jit
def _merge_step(values, RUN: gl.constexpr, APART: gl.constexpr):
    """Order those pairs of values that lie APART and in one pair of runs, as Batcher's merging of odd and even does."""
    for at in gl.static_range(APART % RUN, len(values) - APART):
        if (at - APART % RUN) % (2 * APART) < APART and at // (2 * RUN) == (at + APART) // (2 * RUN):
            values = _ordered(values, at, at + APART)
    return values


@gluon.jit
def _sorted(values, LOG: gl.constexpr):
    """Sort 2^LOG values, the largest first."""
    for log_run in gl.static_range(LOG):
        for log_part in gl.static_range(log_run + 1):
            values = _merge_step(values, 2**log_run, 2 ** (log_run - log_part))
    return values


@gluon.jit
def _clean_step(values, APART: gl.constexpr):
    """Order the pairs of values that lie APART, as sorting what first rises and then falls does."""
    for at in gl.static_range(len(values)):
        if at % (2 * APART) < APART:
            values = _ordered(values, at, at + APART)
    return values


@gluon.jit
def _merged(first, second, LOG: gl.constexpr):
    """Return the larger half of two sorted tuples of 2^LOG values, sorted."""
    larger = ()
    for at in gl.static_range(2**LOG):
        larger = larger + (gl.maximum(first[at], second[2**LOG - 1 - at]),)
    for log_part in gl.static_range(LOG):
        larger = _clean_step(larger, 2 ** (LOG - 1 - log_part))
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
def _largest(keys, LOG: gl.constexpr, LOG_RUNS: gl.constexpr):
    """Return the 2^LOG largest of each row of keys, [rows, 2^(LOG + LOG_RUNS)]: a sorted tuple of tensors [rows, 1]."""
    runs = (keys,)
    for _ in gl.static_range(LOG):
        runs = _half(runs, False) + _half(runs, True)
    runs = _sorted(runs, LOG)
    for _ in gl.static_range(LOG_RUNS):
        runs = _merged(_half(runs, False), _half(runs, True), LOG)
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
    NUM_STAGES: gl.constexpr = 1,
):
    """Store the CHOSEN = TOPK largest of softmax(x[m]) over E experts, in order, and their experts. RENORMALISE:
    divided by their sum.

    2^LOG_K >= TOPK, BLOCK_SIZE_E = 2^(LOG_K + LOG_RUNS) experts are sorted at a time (`FITS_E`: all), BLOCK_SIZE_M =
    SUB_BLOCK_SIZE_M is 32 for each warp, and NUM_STAGES is 1.
    """
    gl.static_assert(HAS_GLUON, "topk_gating_sorted_kernel needs a Triton with triton.experimental.gluon")
    WARPS: gl.constexpr = gl.num_warps()
    ROW: gl.constexpr = gl.BlockedLayout([1, BLOCK_SIZE_E], [32, 1], [WARPS, 1], [1, 0])
    OUT: gl.constexpr = gl.BlockedLayout([1, 2**LOG_K], [32, 1], [WARPS, 1], [1, 0])
    start = gl.program_id(0).to(gl.int64) * BLOCK_SIZE_M
    row = start + gl.arange(0, BLOCK_SIZE_M, layout=gl.SliceLayout(1, ROW))
    expert = gl.arange(0, BLOCK_SIZE_E, layout=gl.SliceLayout(0, ROW))[None, :]
    at = x_ptr + row[:, None] * E + expert
    x = gl.load(at, mask=(row < M)[:, None] & (expert < E), other=float("-inf"))
    best = _largest(_keys(x, expert), LOG_K, LOG_RUNS)
    if not RENORMALISE:
        peak = gl.max(x.to(gl.float32), axis=1)
        of_all = gl.sum(gl.exp(x.to(gl.float32) - peak[:, None]), axis=1)
    if not FITS_E:
        for first in range(BLOCK_SIZE_E, E, BLOCK_SIZE_E):
            x = gl.load(at + first, mask=(row < M)[:, None] & (first + expert < E), other=float("-inf"))
            best = _merged(best, _largest(_keys(x, first + expert), LOG_K, LOG_RUNS), LOG_K)
            if not RENORMALISE:
                higher = gl.maximum(peak, gl.max(x.to(gl.float32), axis=1))
                of_all = of_all * gl.exp(peak - higher) + gl.sum(gl.exp(x.to(gl.float32) - higher[:, None]), axis=1)
                peak = higher
    logits, experts = _logits_and_experts(gl.convert_layout(_columns(best, LOG_K), OUT))
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
