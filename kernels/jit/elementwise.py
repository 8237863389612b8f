"""Element-wise kernels; see `tilewise.kernels.vector.elementwise` for their specs.

A program takes its share of an axis in trips of one sub-block. The share is a contiguous block (`blocks`), or
sub-blocks one whole grid apart (`grid_stride`). The latter is a persistent loop if there are as many programs as cores.

An axis at least as long as a sub-block (`FITS`) needs no mask: a sub-block that would cross the end of its share is
moved back to end there, and the overlap with its neighbour is computed twice, to the same values. On Ascend a masked
tile is filled first, which delays the transfers; on NVIDIA a mask may narrow the loads.

Everything is computed in float32. Offsets have 64 bits: tensors may have more than 2^31 elements.
"""

import triton
import triton.language as tl


@triton.jit
def _start(trip, program, programs, size, VARIANT: tl.constexpr, BLOCK: tl.constexpr, SUB: tl.constexpr, FITS):
    """Return the start of a program's sub-block of this trip on an axis of `size`."""
    if VARIANT == "grid_stride":
        start = (trip * programs + program).to(tl.int64) * SUB
    else:
        start = program.to(tl.int64) * BLOCK + trip * SUB
    if FITS:
        if VARIANT == "blocks" and BLOCK % SUB != 0:
            size = tl.minimum((program.to(tl.int64) + 1) * BLOCK, size)
        start = tl.minimum(start, size - SUB)
    return start


@triton.jit
def _load(ptr, at, size, FITS: tl.constexpr):
    """Load as float32. An NVIDIA cache keeps inputs rather than outputs, which may then be evicted early: 1% faster."""
    if FITS:
        values = tl.load(ptr + at, eviction_policy="evict_last")
    else:
        values = tl.load(ptr + at, mask=at < size, other=0.0, eviction_policy="evict_last")
    return values.to(tl.float32)


@triton.jit
def _store(ptr, at, values, size, FITS: tl.constexpr):
    if FITS:
        tl.store(ptr + at, values)
    else:
        tl.store(ptr + at, values, mask=at < size)


@triton.jit
def _load_tile(ptr, rows, cols, M, N, FITS_M: tl.constexpr, FITS_N: tl.constexpr):
    at = rows[:, None] * N + cols[None, :]
    if FITS_M and FITS_N:
        values = tl.load(ptr + at)
    else:
        values = tl.load(ptr + at, mask=(rows < M)[:, None] & (cols < N)[None, :], other=0.0)
    return values.to(tl.float32)


@triton.jit
def _store_tile(ptr, rows, cols, values, M, N, FITS_M: tl.constexpr, FITS_N: tl.constexpr):
    at = rows[:, None] * N + cols[None, :]
    if FITS_M and FITS_N:
        tl.store(ptr + at, values)
    else:
        tl.store(ptr + at, values, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def vector_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    N,
    FITS: tl.constexpr,
    VARIANT: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SUB_BLOCK_SIZE: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute `out[n] = x[n] + y[n]`."""
    for trip in tl.range(0, (BLOCK_SIZE - 1) // SUB_BLOCK_SIZE + 1, num_stages=NUM_STAGES):
        start = _start(trip, tl.program_id(0), tl.num_programs(0), N, VARIANT, BLOCK_SIZE, SUB_BLOCK_SIZE, FITS)
        at = start + tl.arange(0, SUB_BLOCK_SIZE)
        _store(out_ptr, at, _load(x_ptr, at, N, FITS) + _load(y_ptr, at, N, FITS), N, FITS)


@triton.jit
def gelu_kernel(
    x_ptr,
    out_ptr,
    N,
    FITS: tl.constexpr,
    FORM: tl.constexpr,
    VARIANT: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SUB_BLOCK_SIZE: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute `out[n] = gelu(x[n])` in one of three forms: `tanh`, `rational`, `erf`."""
    for trip in tl.range(0, (BLOCK_SIZE - 1) // SUB_BLOCK_SIZE + 1, num_stages=NUM_STAGES):
        start = _start(trip, tl.program_id(0), tl.num_programs(0), N, VARIANT, BLOCK_SIZE, SUB_BLOCK_SIZE, FITS)
        at = start + tl.arange(0, SUB_BLOCK_SIZE)
        x = _load(x_ptr, at, N, FITS)
        if FORM == "tanh":
            y = _gelu_tanh(x)
        elif FORM == "rational":
            y = _gelu_rational(x)
        else:
            y = _gelu_erf(x)
        _store(out_ptr, at, y, N, FITS)


@triton.jit
def _gelu_tanh(x):
    """Return `x / 2 * (1 + tanh(u))` with `u = sqrt(2 / pi) * (x + 0.044715 x^3)`.

    It is written as the equal `x * sigmoid(2 u)`, which avoids the tanh and the cancellation. `exp` may overflow to
    inf, and the quotient is then 0, its limit.
    """
    return x / (1.0 + tl.exp(x * (x * x * -0.07135481627260025 - 1.5957691216057308)))  # exp(-2 u)


@triton.jit
def _gelu_rational(x):
    """Return the tanh form with `tanh(u) = u (945 + 105 u^2 + u^4) / (945 + 420 u^2 + 15 u^4)`, clamped to [-1, 1].

    The quotient reaches 1 at u = 3.65. Capping u^2 at 16 changes nothing below u = 4 and keeps the polynomials from
    overflowing; beyond 4 the quotient rises linearly with u, and the clamp makes it 1.
    """
    u = x * (x * x * 0.035677408136300125 + 0.7978845608028654)
    t = tl.minimum(u * u, 16.0, propagate_nan=tl.PropagateNan.ALL)
    tanh = u * ((t + 105.0) * t + 945.0) / ((t * 15.0 + 420.0) * t + 945.0)
    tanh = tl.minimum(tanh, 1.0, propagate_nan=tl.PropagateNan.ALL)
    tanh = tl.maximum(tanh, -1.0, propagate_nan=tl.PropagateNan.ALL)
    return x * (tanh * 0.5 + 0.5)


@triton.jit
def _gelu_erf(x):
    """Return `x / 2 * (1 + erf(x / sqrt(2)))`, the exact form."""
    return x * (tl.erf(x * 0.7071067811865476) * 0.5 + 0.5)


@triton.jit
def relu_bias_scale_kernel(
    x_ptr,
    bias_ptr,
    out_ptr,
    M,
    N,
    scale,
    FITS_M: tl.constexpr,
    FITS_N: tl.constexpr,
    VARIANT: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute `out[m, n] = relu(x[m, n] + bias[n]) * scale`; NaN propagates, as in torch's relu."""
    parts = (N - 1) // BLOCK_SIZE_N + 1  # not (N + BLOCK_SIZE_N - 1), which may exceed 32 bits
    program, programs = tl.program_id(0) // parts, tl.num_programs(0) // parts
    cols = _start(0, tl.program_id(0) % parts, parts, N, "blocks", BLOCK_SIZE_N, BLOCK_SIZE_N, FITS_N)
    cols += tl.arange(0, BLOCK_SIZE_N)
    bias = _load(bias_ptr, cols, N, FITS_N)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1, num_stages=NUM_STAGES):
        start = _start(trip, program, programs, M, VARIANT, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M, FITS_M)
        rows = start + tl.arange(0, SUB_BLOCK_SIZE_M)
        x = _load_tile(x_ptr, rows, cols, M, N, FITS_M, FITS_N)
        y = tl.maximum(x + bias[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL) * scale
        _store_tile(out_ptr, rows, cols, y, M, N, FITS_M, FITS_N)


@triton.jit
def layer_norm_apply_kernel(
    x_ptr,
    mean_ptr,
    rstd_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    M,
    N,
    FITS_M: tl.constexpr,
    FITS_N: tl.constexpr,
    VARIANT: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute `out[m, n] = (x[m, n] - mean[m]) * rstd[m] * weight[n] + bias[n]`."""
    parts = (N - 1) // BLOCK_SIZE_N + 1
    program, programs = tl.program_id(0) // parts, tl.num_programs(0) // parts
    cols = _start(0, tl.program_id(0) % parts, parts, N, "blocks", BLOCK_SIZE_N, BLOCK_SIZE_N, FITS_N)
    cols += tl.arange(0, BLOCK_SIZE_N)
    weight = _load(weight_ptr, cols, N, FITS_N)
    bias = _load(bias_ptr, cols, N, FITS_N)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1, num_stages=NUM_STAGES):
        start = _start(trip, program, programs, M, VARIANT, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M, FITS_M)
        rows = start + tl.arange(0, SUB_BLOCK_SIZE_M)
        x = _load_tile(x_ptr, rows, cols, M, N, FITS_M, FITS_N)
        mean = _load(mean_ptr, rows, M, FITS_M)
        rstd = _load(rstd_ptr, rows, M, FITS_M)
        y = (x - mean[:, None]) * rstd[:, None] * weight[None, :] + bias[None, :]
        _store_tile(out_ptr, rows, cols, y, M, N, FITS_M, FITS_N)


@triton.jit
def silu_and_mul_kernel(
    x_ptr,
    out_ptr,
    M,
    N,
    FITS_M: tl.constexpr,
    FITS_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    NUM_STAGES: tl.constexpr = 1,
):
    """Compute `out[m, n] = silu(x[m, n]) * x[m, N + n]`, where x has 2 N columns: as 2 M rows of N, the gates are in
    the even rows and their factors in the odd ones. `exp` may overflow to inf; the quotient is then 0, its limit."""
    parts = (N - 1) // BLOCK_SIZE_N + 1
    program, programs = tl.program_id(0) // parts, tl.num_programs(0) // parts
    cols = _start(0, tl.program_id(0) % parts, parts, N, "blocks", BLOCK_SIZE_N, BLOCK_SIZE_N, FITS_N)
    cols += tl.arange(0, BLOCK_SIZE_N)
    for trip in tl.range(0, (BLOCK_SIZE_M - 1) // SUB_BLOCK_SIZE_M + 1, num_stages=NUM_STAGES):
        start = _start(trip, program, programs, M, "blocks", BLOCK_SIZE_M, SUB_BLOCK_SIZE_M, FITS_M)
        rows = start + tl.arange(0, SUB_BLOCK_SIZE_M)
        gate = _load_tile(x_ptr, 2 * rows, cols, 2 * M, N, FITS_M, FITS_N)
        factor = _load_tile(x_ptr, 2 * rows + 1, cols, 2 * M, N, FITS_M, FITS_N)
        y = gate / (1.0 + tl.exp(-gate)) * factor
        _store_tile(out_ptr, rows, cols, y, M, N, FITS_M, FITS_N)
