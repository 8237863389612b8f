# ruff: noqa: N803, SIM108
"""Small kernels that make the compiler emit its operations, each with a spec; loaded by path as a user's file is."""

import os

import triton
import triton.language as tl
from triton.language.extra.ascend import libdevice
from triton.language.extra.libdevice import rsqrt
from triton.language.extra.libdevice import tanh as portable_tanh

from tilewise.kernels.spec import Axis, Buffer, KernelSpec, Parameter, Tiling, ceil_div


def spec(kernel, *, inputs=1, dtype="float32", out=None, out_shape=None, block=256, cols=None, grid=None):
    """Return a spec over N elements in blocks of B; with `cols`, over M rows in blocks of R with tiles of C columns."""
    names = ("x_ptr", "y_ptr")[:inputs]
    sizes = {"B": block} if cols is None else {"R": block, "C": cols}
    dims, first = (("N",), "B") if cols is None else (("M", "N"), "R")

    def shape(problem):
        return tuple(problem.dims[name] for name in dims)

    def buffers(problem):
        inward = {name: Buffer(shape(problem), problem.dtype) for name in names}
        outward = Buffer(out_shape or shape(problem), out or problem.dtype, role="out")
        return {**inward, "out_ptr": outward}

    def programs(config, problem):
        return (ceil_div(problem.dims[dims[0]], config[first]),)

    def tiling(config, problem):
        return Tiling((Axis(dims[0], problem.dims[dims[0]], config[first], config[first]),), 0, 0)

    return KernelSpec(
        name=kernel.__name__,
        summary="an operation",
        function=kernel,
        dims=dims,
        dtypes=(dtype,),
        parameters=tuple(Parameter(name, lambda p, t, size=size: [size]) for name, size in sizes.items()),
        buffers=buffers,
        scalars=lambda problem: dict(problem.dims),
        grid=grid or programs,
        tiling=tiling,
        reference=lambda inputs: {},
        flops=lambda problem: 1,
        default=lambda problem, target: sizes,
    )


@triton.jit
def relu(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(out_ptr + i, tl.maximum(x, 0.0), mask=i < N)


@triton.jit
def extremes_with_nan(x_ptr, y_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    y = tl.load(y_ptr + i, mask=i < N, other=0.0)
    high = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    low = tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + i, high - low, mask=i < N)


@triton.jit
def select(x_ptr, y_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    y = tl.load(y_ptr + i, mask=i < N, other=0.0)
    tl.store(out_ptr + i, tl.where((x > y) & (x != 0.0) | (y <= 1.0), x, y * 2), mask=i < N)


@triton.jit
def roots(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.abs(tl.load(x_ptr + i, mask=i < N, other=1.0))
    tl.store(out_ptr + i, tl.exp(x) + tl.log(x + 1.0) + tl.sqrt(x) + tl.rsqrt(x + 1.0), mask=i < N)


@triton.jit
def rounding(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(out_ptr + i, tl.erf(x) + tl.floor(x) + tl.ceil(x) + tl.exp2(x), mask=i < N)


@triton.jit
def waves(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(out_ptr + i, tl.sin(x) + tl.cos(x) + libdevice.tanh(x), mask=i < N)


@triton.jit
def library(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=1.0)
    y = libdevice.pow(x, x) + libdevice.reciprocal(x) + libdevice.log1p(x) + libdevice.relu(x)
    tl.store(out_ptr + i, tl.where(libdevice.isnan(y), 0.0, y), mask=i < N)


@triton.jit
def portable(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=1.0)
    tl.store(out_ptr + i, portable_tanh(x) + rsqrt(x * x + 1.0), mask=i < N)


@triton.jit
def quotient(x_ptr, y_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    y = tl.load(y_ptr + i, mask=i < N, other=1.0)
    tl.store(out_ptr + i, x / y - tl.fma(x, y, x), mask=i < N)


@triton.jit
def casts(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    y = x.to(tl.float16).to(tl.float32) + x.to(tl.bfloat16).to(tl.float32) + x.to(tl.int32).to(tl.float32)
    tl.store(out_ptr + i, y, mask=i < N)


@triton.jit
def narrowing(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(out_ptr + i, x.to(tl.int8), mask=i < N)


@triton.jit
def comparison(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(out_ptr + i, (x > 0.5).to(tl.int32), mask=i < N)


@triton.jit
def bits(x_ptr, y_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0)
    y = tl.load(y_ptr + i, mask=i < N, other=1)
    z = (x * 3 + y - (x & y)) ^ (x | 7)
    tl.store(out_ptr + i, (z << 2) + (z >> 1) + tl.maximum(x, y), mask=i < N)


@triton.jit
def remainder(x_ptr, y_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0)
    y = tl.load(y_ptr + i, mask=i < N, other=1)
    tl.store(out_ptr + i, x // y + x % y, mask=i < N)


@triton.jit
def positions(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(out_ptr + i, x * i, mask=i < N)


@triton.jit
def atomic_sum(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + i, mask=i < N, other=0.0)))


@triton.jit
def atomic_highest(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_max(out_ptr, tl.max(tl.load(x_ptr + i, mask=i < N, other=float("-inf"))))


@triton.jit
def atomic_block(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out_ptr + tl.arange(0, B), tl.load(x_ptr + i, mask=i < N, other=0.0))


@triton.jit
def numbers(x_ptr, out_ptr, N, B: tl.constexpr):
    """Read scalars from memory, compute with them, and use them in a vector operation."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    s = tl.load(x_ptr + tl.program_id(0))
    t = tl.load(x_ptr + tl.program_id(0) + 1)
    u = tl.exp(s) + tl.log(t) + tl.rsqrt(s) + tl.floor(t) + tl.maximum(s, t) + tl.where(s > t, s, -t) + s / t
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(out_ptr + i, x * (u + s.to(tl.int32)), mask=i < N)


@triton.jit
def whole_numbers(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    s = tl.load(x_ptr + tl.program_id(0))
    t = tl.load(x_ptr + tl.program_id(0) + 1)
    u = s // t + s % t + (s << 2) + (s >> 1) + (s & t) + (s | t) + (s ^ t) + tl.abs(s) + tl.where(s > t, s, t)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < N, other=0) * u, mask=i < N)


@triton.jit
def standardise(x_ptr, out_ptr, N, B: tl.constexpr):
    """Compute a block's mean and deviation as scalars."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    mean = tl.sum(x) / B
    deviation = tl.sqrt(tl.sum(x * x) / B - mean * mean + 1e-5)
    tl.store(out_ptr + i, (x - mean) / deviation, mask=i < N)


@triton.jit
def gather(x_ptr, y_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    chosen = tl.load(y_ptr + i, mask=i < N, other=0)
    tl.store(out_ptr + i, tl.load(x_ptr + chosen, mask=i < N, other=0), mask=i < N)


@triton.jit
def scatter(x_ptr, y_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    chosen = tl.load(y_ptr + i, mask=i < N, other=0)
    tl.store(out_ptr + chosen, tl.load(x_ptr + i, mask=i < N, other=0), mask=i < N)


@triton.jit
def strided(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(x_ptr + 2 * i) * tl.load(x_ptr + 2 * i + 1))


@triton.jit
def strided_by_size(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out_ptr + i * N, tl.load(x_ptr + i * N))


@triton.jit
def persistent_while(x_ptr, out_ptr, N, B: tl.constexpr):
    at = tl.program_id(0) * B
    total = tl.zeros([B], tl.float32)
    while at < N:
        i = at + tl.arange(0, B)
        total += tl.load(x_ptr + i, mask=i < N, other=0.0)
        at += 3 * B
    tl.store(out_ptr + tl.program_id(0) * B + tl.arange(0, B), total)


@triton.jit
def halving_while(x_ptr, out_ptr, N, B: tl.constexpr):
    n = N
    s = 0
    while n > 1:
        s += n % 3
        n = n // 2
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < N, other=0.0) * s, mask=i < N)


@triton.jit
def nested_if(x_ptr, out_ptr, N, B: tl.constexpr):
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    if p % 2 == 0:
        if p > 4:
            s = 3.0
        else:
            s = 4.0
        x = tl.exp(x * s)
    else:
        x = x + p
    tl.store(out_ptr + i, x, mask=i < N)


@triton.jit
def softmax(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    mask = (r < M)[:, None] & (c < N)[None, :]
    x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=mask, other=float("-inf"))
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(out_ptr + r[:, None] * N + c[None, :], x / tl.sum(x, axis=1)[:, None], mask=mask)


@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def row_folds(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    mask = (r < M)[:, None] & (c < N)[None, :]
    x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=mask, other=1.0)
    tl.store(out_ptr + r, tl.min(x, axis=1) + tl.reduce(x, 1, _times) + tl.argmax(x, axis=1), mask=r < M)


@triton.jit
def column_folds(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    mask = (r < M)[:, None] & (c < N)[None, :]
    x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=mask, other=0.0)
    tl.atomic_add(out_ptr + c, tl.sum(x, axis=0) + tl.max(x, axis=0), mask=c < N)


@triton.jit
def running_sums(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :])
    y = tl.cumsum(x, axis=0) + tl.cumprod(x, axis=0) + tl.cumsum(x, axis=1)
    tl.store(out_ptr + r[:, None] * N + c[None, :], y)


@triton.jit
def broadcasts(x_ptr, y_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    mask = (r < M)[:, None] & (c < N)[None, :]
    x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=mask, other=0.0)
    a = tl.load(y_ptr + c, mask=c < N, other=0.0)
    b = tl.load(y_ptr + r, mask=r < M, other=0.0)
    tl.store(out_ptr + r[:, None] * N + c[None, :], x * a[None, :] + b[:, None], mask=mask)


@triton.jit
def transposed_load(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    mask = (r < M)[:, None] & (c < N)[None, :]
    x = tl.load(x_ptr + r[:, None] + c[None, :] * M, mask=mask, other=0.0)
    tl.store(out_ptr + r[:, None] * N + c[None, :], x, mask=mask)


@triton.jit
def transpose(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :])
    tl.store(out_ptr + c[:, None] * M + r[None, :], tl.trans(x))


@triton.jit
def moves(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    half = tl.arange(0, C // 2)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :])
    even, odd = tl.split(tl.reshape(x, (R, C // 2, 2)))
    tl.store(out_ptr + r[:, None] * N + half[None, :], even * odd)
    tl.store(out_ptr + r[:, None] * N + c[None, :], tl.flip(x, 1) + tl.interleave(even, odd))


@triton.jit
def sort(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :])
    tl.store(out_ptr + r[:, None] * N + c[None, :], tl.sort(x))


@triton.jit
def pick(x_ptr, y_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    """Gather elements of a tile that is on chip, with tl.gather."""
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :])
    chosen = tl.load(y_ptr + r[:, None] * N + c[None, :]).to(tl.int32)
    tl.store(out_ptr + r[:, None] * N + c[None, :], tl.gather(x, chosen, 1))


@triton.jit
def reshape(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :])
    halves = tl.sum(tl.reshape(x, (R * 2, C // 2)), axis=1)
    tl.store(out_ptr + tl.program_id(0) * R * 2 + tl.arange(0, R * 2), halves)


@triton.jit
def block_pointers(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    first = tl.program_id(0) * R
    x = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (first, 0), (R, C), (1, 0))
    y = tl.make_block_ptr(out_ptr, (M, N), (N, 1), (first, 0), (R, C), (1, 0))
    for _ in range(0, N, C):
        tl.store(y, tl.load(x, boundary_check=(0, 1)) * 2, boundary_check=(0, 1))
        x = tl.advance(x, (0, C))
        y = tl.advance(y, (0, C))


@triton.jit
def layer_norm(x_ptr, y_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    sums = tl.zeros([R, C], tl.float32)
    squares = tl.zeros([R, C], tl.float32)
    for left in range(0, N, C):
        c = left + tl.arange(0, C)
        mask = (r < M)[:, None] & (c < N)[None, :]
        x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=mask, other=0.0)
        sums += x
        squares += x * x
    mean = tl.sum(sums, axis=1) / N
    scale = tl.rsqrt(tl.sum(squares, axis=1) / N - mean * mean + 1e-5)
    for left in range(0, N, C):
        c = left + tl.arange(0, C)
        mask = (r < M)[:, None] & (c < N)[None, :]
        x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=mask, other=0.0)
        w = tl.load(y_ptr + c, mask=c < N, other=0.0)
        tl.store(out_ptr + r[:, None] * N + c[None, :], (x - mean[:, None]) * scale[:, None] * w[None, :], mask=mask)


@triton.jit
def online_log_sum(x_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    high = tl.full([R], float("-inf"), tl.float32)
    total = tl.zeros([R], tl.float32)
    for left in range(0, N, C):
        c = left + tl.arange(0, C)
        mask = (r < M)[:, None] & (c < N)[None, :]
        x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=mask, other=float("-inf"))
        higher = tl.maximum(high, tl.max(x, axis=1))
        total = total * tl.exp(high - higher) + tl.sum(tl.exp(x - higher[:, None]), axis=1)
        high = higher
    tl.store(out_ptr + r, high + tl.log(total), mask=r < M)


@triton.jit
def halves(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(out_ptr + i, x * x + tl.exp(x.to(tl.float32)).to(x.dtype), mask=i < N)


@triton.jit
def whole(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0)
    tl.store(out_ptr + i, x * x + x, mask=i < N)


RELU = spec(relu)
EXTREMES = spec(extremes_with_nan, inputs=2)
SELECT = spec(select, inputs=2)
ROOTS = spec(roots)
ROUNDING = spec(rounding)
WAVES = spec(waves)
LIBRARY = spec(library)
PORTABLE = spec(portable)
QUOTIENT = spec(quotient, inputs=2)
CASTS = spec(casts)
NARROWING = spec(narrowing, out="int8")
COMPARISON = spec(comparison, out="int32")
BITS = spec(bits, inputs=2, dtype="int32")
REMAINDER = spec(remainder, inputs=2, dtype="int32")
POSITIONS = spec(positions)
ATOMIC_SUM = spec(atomic_sum, out_shape=(1,))
ATOMIC_HIGHEST = spec(atomic_highest, out_shape=(1,))
ATOMIC_BLOCK = spec(atomic_block, out_shape=(256,))
NUMBERS = spec(numbers)
WHOLE_NUMBERS = spec(whole_numbers, dtype="int32")
STANDARDISE = spec(standardise)
GATHER = spec(gather, inputs=2, dtype="int32")
SCATTER = spec(scatter, inputs=2, dtype="int32")
STRIDED = spec(strided)
STRIDED_BY_SIZE = spec(strided_by_size)
PERSISTENT_WHILE = spec(persistent_while, grid=lambda config, problem: (3,))
HALVING_WHILE = spec(halving_while)
NESTED_IF = spec(nested_if)
SOFTMAX = spec(softmax, block=16, cols=128)
ROW_FOLDS = spec(row_folds, block=16, cols=128)
COLUMN_FOLDS = spec(column_folds, block=16, cols=128, out_shape=(128,))
RUNNING_SUMS = spec(running_sums, block=16, cols=128)
BROADCASTS = spec(broadcasts, inputs=2, block=16, cols=128)
TRANSPOSED_LOAD = spec(transposed_load, block=16, cols=128)
TRANSPOSE = spec(transpose, block=16, cols=128)
MOVES = spec(moves, block=16, cols=128)
SORT = spec(sort, block=16, cols=128)
PICK = spec(pick, inputs=2, block=16, cols=128)
RESHAPE = spec(reshape, block=16, cols=128)
BLOCK_POINTERS = spec(block_pointers, block=16, cols=128)
LAYER_NORM = spec(layer_norm, inputs=2, block=16, cols=128)
ONLINE_LOG_SUM = spec(online_log_sum, block=16, cols=128)
HALVES = spec(halves, dtype="float16")
BRAIN_HALVES = spec(halves, dtype="bfloat16")
LONGS = spec(whole, dtype="int64")
BYTES = spec(whole, dtype="int8")


# Kernels that cannot be timed, each for one reason.


@triton.jit
def matrix_product(x_ptr, y_ptr, out_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :])
    y = tl.load(y_ptr + c[:, None] * N + r[None, :])
    tl.store(out_ptr + r[:, None] * N + r[None, :], tl.dot(x, y))


@triton.jit
def branch_on_data(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    if tl.sum(x) > 0.5:
        tl.store(out_ptr + i, tl.exp(x), mask=i < N)
    else:
        tl.store(out_ptr + i, x, mask=i < N)


@triton.jit
def loop_on_data(x_ptr, out_ptr, N, B: tl.constexpr):
    n = tl.load(x_ptr)
    s = 0
    while n > 1:
        s += 1
        n = n // 2
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out_ptr + i, i * s, mask=i < N)


@triton.jit
def undefined_name(x_ptr, out_ptr, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(out_ptr + i, tl.no_such_function(x), mask=i < N)


@triton.jit
def one_argument_more(x_ptr, out_ptr, N, MISSING, B: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, B), tl.load(x_ptr + tl.arange(0, B)) * MISSING)


@triton.jit
def scaled(x_ptr, out_ptr, N, scale, flag, one, B: tl.constexpr, bias: tl.constexpr = 2):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    if flag:
        x = x * scale
    tl.store(out_ptr + i, x * one + bias, mask=i < N)


def crashing_grid(config, problem):
    if problem.dims["N"] == 13:
        os.abort()
    return (ceil_div(problem.dims["N"], config["B"]),)


MATRIX_PRODUCT = spec(matrix_product, inputs=2, block=16, cols=16)
BRANCH_ON_DATA = spec(branch_on_data)
LOOP_ON_DATA = spec(loop_on_data, dtype="int32")
UNDEFINED_NAME = spec(undefined_name)
ONE_ARGUMENT_MORE = spec(one_argument_more)
CRASHING = spec(relu, grid=crashing_grid)
SCALED = spec(scaled)
