"""Losses of the first look, written from what the published kernels load and compute."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "cosine_kernel",
    "hinge_kernel",
    "huber_kernel",
    "kl_div_kernel",
    "mean_kernel",
    "mse_kernel",
    "triplet_kernel",
]


@triton.jit
def kl_div_kernel(x_ptr, y_ptr, sums_ptr, B: tl.constexpr, N: tl.constexpr, BLOCK_SIZE_N: tl.constexpr):
    """Sum up y (log y - log x) of a row per program."""
    row = tl.program_id(0)
    if row < B:
        total = 0.0
        for left in range(0, N, BLOCK_SIZE_N):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            x = tl.maximum(tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0), 1e-8)
            y = tl.maximum(tl.load(y_ptr + row * N + cols, mask=cols < N, other=0.0), 1e-8)
            total += tl.sum(y * (tl.log(y) - tl.log(x)), axis=0)
        tl.store(sums_ptr + row, total)


@triton.jit
def mean_kernel(sums_ptr, out_ptr, B: tl.constexpr):
    """Mean of B numbers, loaded one by one."""
    if tl.program_id(0) == 0:
        total = 0.0
        for row in range(B):
            total += tl.load(sums_ptr + row)
        tl.store(out_ptr, total / B)


@triton.jit
def triplet_kernel(
    a_ptr,
    p_ptr,
    n_ptr,
    losses_ptr,
    out_ptr,
    B: tl.constexpr,
    D: tl.constexpr,
    BLOCK_SIZE_B: tl.constexpr,
    BLOCK_SIZE_D: tl.constexpr,
):
    """Triplet loss of each row, and the first program's mean of all."""
    for top in range(tl.program_id(0) * BLOCK_SIZE_B, B, tl.num_programs(0) * BLOCK_SIZE_B):
        rows = top + tl.arange(0, BLOCK_SIZE_B)
        near = tl.zeros((BLOCK_SIZE_B,), dtype=tl.float32)
        far = tl.zeros((BLOCK_SIZE_B,), dtype=tl.float32)
        for left in range(0, D, BLOCK_SIZE_D):
            cols = left + tl.arange(0, BLOCK_SIZE_D)
            at = rows[:, None] * D + cols[None, :]
            mask = (rows < B)[:, None] & (cols < D)[None, :]
            a = tl.load(a_ptr + at, mask=mask, other=0.0)
            to_p = a - tl.load(p_ptr + at, mask=mask, other=0.0)
            to_n = a - tl.load(n_ptr + at, mask=mask, other=0.0)
            near += tl.sum(to_p * to_p, axis=1)
            far += tl.sum(to_n * to_n, axis=1)
        loss = tl.maximum(tl.sqrt(near) - tl.sqrt(far) + 1.0, 0.0)
        tl.store(losses_ptr + rows, loss, mask=rows < B)
    if tl.program_id(0) == 0:
        total = 0.0
        for top in range(0, B, BLOCK_SIZE_B):
            rows = top + tl.arange(0, BLOCK_SIZE_B)
            total += tl.sum(tl.load(losses_ptr + rows, mask=rows < B, other=0.0))
        tl.store(out_ptr, total / B)


@triton.jit
def mse_kernel(x_ptr, y_ptr, out_ptr, n: tl.constexpr, BLOCK_SIZE: tl.constexpr, SUB_BLOCK_SIZE: tl.constexpr):
    """Add up squared differences of a block per program, in steps."""
    first = tl.program_id(0) * BLOCK_SIZE
    total = 0.0
    for step in range(0, tl.minimum(first + BLOCK_SIZE, n) - first, SUB_BLOCK_SIZE):
        at = first + step + tl.arange(0, SUB_BLOCK_SIZE)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        off = x - tl.load(y_ptr + at, mask=at < n, other=0.0)
        total += tl.sum(off * off, axis=0)
    tl.atomic_add(out_ptr, total)


@triton.jit
def huber_kernel(x_ptr, y_ptr, out_ptr, n: tl.constexpr, BLOCK_SIZE: tl.constexpr, NUM_CORES: tl.constexpr):
    """Add up Huber losses; the programs take turns."""
    total = 0.0
    for start in range(tl.program_id(0) * BLOCK_SIZE, n, NUM_CORES * BLOCK_SIZE):
        at = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        off = x - tl.load(y_ptr + at, mask=at < n, other=0.0)
        total += tl.sum(tl.where(tl.abs(off) < 1.0, 0.5 * off * off / 1.0, tl.abs(off) - 0.5))
    tl.atomic_add(out_ptr, total)


@triton.jit
def cosine_kernel(
    x_ptr, y_ptr, out_ptr, B: tl.constexpr, D: tl.constexpr, BLOCK_SIZE: tl.constexpr, NUM_CORES: tl.constexpr
):
    """Add up cosine distances of a range of rows per program: three sums a step."""
    each = tl.cdiv(B, NUM_CORES)
    first = tl.program_id(0) * each
    loss = 0.0
    for row in range(first, tl.minimum(first + each, B)):
        both = 0.0
        of_x = 0.0
        of_y = 0.0
        for left in range(0, D, BLOCK_SIZE):
            cols = left + tl.arange(0, BLOCK_SIZE)
            x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
            y = tl.load(y_ptr + row * D + cols, mask=cols < D, other=0.0)
            both += tl.sum(x * y, axis=0)
            of_x += tl.sum(x * x, axis=0)
            of_y += tl.sum(y * y, axis=0)
        loss += 1.0 - both / tl.maximum(tl.sqrt(of_x) * tl.sqrt(of_y), 1e-8)
    tl.atomic_add(out_ptr, loss)


@triton.jit
def hinge_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    B: tl.constexpr,
    D: tl.constexpr,
    BLOCK_SIZE_B: tl.constexpr,
    BLOCK_SIZE_D: tl.constexpr,
    NUM_CORES: tl.constexpr,
):
    """Add up hinge losses; programs without a block add 0."""
    total = 0.0
    for block in range(tl.program_id(0), tl.cdiv(B, BLOCK_SIZE_B), NUM_CORES):
        for left in range(0, D, BLOCK_SIZE_D):
            rows = block * BLOCK_SIZE_B + tl.arange(0, BLOCK_SIZE_B)
            cols = left + tl.arange(0, BLOCK_SIZE_D)
            mask = (rows < B)[:, None] & (cols < D)[None, :]
            at = rows[:, None] * D + cols[None, :]
            x = tl.load(x_ptr + at, mask=mask, other=0.0)
            off = 1.0 - x * tl.load(y_ptr + at, mask=mask, other=0.0)
            total += tl.sum(tl.where(off > 0.0, off, 0.0))
    tl.atomic_add(out_ptr, total)
