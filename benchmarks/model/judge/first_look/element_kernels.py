"""Element-wise kernels of the first look, written from what the published ones load, mask, compute and store."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.ascend import libdevice

__all__ = [
    "elu_kernel",
    "hard_sigmoid_kernel",
    "hard_tanh_kernel",
    "leaky_relu_kernel",
    "new_gelu_kernel",
    "selu_kernel",
    "softplus_kernel",
    "swish_kernel",
]


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr, TILE_SIZE: tl.constexpr):
    """Take one block per program, in tiles."""
    first = tl.program_id(0) * BLOCK_SIZE
    for start in range(first, tl.minimum(first + BLOCK_SIZE, n), TILE_SIZE):
        at = start + tl.arange(0, TILE_SIZE)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        tl.store(out_ptr + at, tl.maximum(x, x * 0.01), mask=at < n)


@triton.jit
def swish_kernel(x_ptr, out_ptr, n, NUM_CORES: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """Take a range of whole blocks per program."""
    each = tl.cdiv(tl.cdiv(n, NUM_CORES), BLOCK_SIZE) * BLOCK_SIZE
    first = tl.program_id(0) * each
    end = tl.minimum(first + each, n)
    for start in range(first, end, BLOCK_SIZE):
        at = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + at, mask=at < end, other=0.0)
        tl.store(out_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < end)


@triton.jit
def selu_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    """Select the positive and the negative part, each with a mask of its own, and add them."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    above = tl.where(x > 0.0, x, 0.0)
    below = tl.where(x <= 0.0, (tl.exp(x) - 1.0) * 1.6732632423543772, 0.0)
    tl.store(out_ptr + at, (above + below) * 1.0507009873554805, mask=at < n)


@triton.jit
def hard_sigmoid_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, tl.minimum(tl.maximum((x + 3.0) / 6.0, 0.0), 1.0), mask=at < n)


@triton.jit
def softplus_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, tl.log(1.0 + tl.exp(x)), mask=at < n)


@triton.jit
def elu_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    """Take the exponential to base 2 of a product."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, tl.where(x > 0.0, x, (tl.exp2(x * 1.442695) - 1.0) * 1.0), mask=at < n)


@triton.jit
def hard_tanh_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, tl.minimum(tl.maximum(x, -1.0), 1.0), mask=at < n)


@triton.jit
def new_gelu_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr, NUM_CORES: tl.constexpr):
    """Take a contiguous range per program, in blocks."""
    each = tl.cdiv(n, NUM_CORES)
    first = tl.program_id(0) * each
    end = tl.minimum(first + each, n)
    for start in range(first, end, BLOCK_SIZE):
        at = start + tl.arange(0, BLOCK_SIZE)
        mask = at < tl.minimum(start + BLOCK_SIZE, end)
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        inner = 0.7978845608028654 * (0.044715 * (x * x * x) + x)
        tl.store(out_ptr + at, 0.5 * x * (libdevice.tanh(inner) + 1.0), mask=mask)
