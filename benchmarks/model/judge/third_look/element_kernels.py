"""The kernels of the third look, written from what the published ones load, compute and store."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "muladd_rows_kernel",
    "narrow_divide_kernel",
    "narrow_runs_kernel",
    "narrow_slab_kernel",
    "narrow_turns_kernel",
]


@triton.jit
def narrow_divide_kernel(x_ptr, out_ptr, TOTAL, DIM, POST, START, LENGTH, BLOCK_SIZE: tl.constexpr):
    """Copy one masked block per program, whose elements each find their place by divisions of run-time arguments."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < TOTAL
    outer = at // (LENGTH * POST)
    middle = (at // POST) % LENGTH
    source = outer * DIM * POST + (middle + START) * POST + at % POST
    tl.store(out_ptr + at, tl.load(x_ptr + source, mask=mask), mask=mask)


@triton.jit
def narrow_slab_kernel(
    x_ptr, out_ptr, TOTAL: tl.constexpr, POST: tl.constexpr, START: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    """Copy one masked block per program, with all sizes known when it is compiled."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + (at + START * POST), at < TOTAL)
    tl.store(out_ptr + at, x, at < TOTAL)


@triton.jit
def narrow_runs_kernel(x_ptr, out_ptr, OFFSET, RUN, ROW, SEGMENTS, BLOCK_SIZE: tl.constexpr):
    """Copy one whole block of a contiguous run per program."""
    run = tl.program_id(0) // SEGMENTS
    segment = tl.program_id(0) - run * SEGMENTS
    at = segment * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + (OFFSET + run * ROW) + at)
    tl.store(out_ptr + run * RUN + at, x)


@triton.jit
def narrow_turns_kernel(x_ptr, out_ptr, OFFSET, BLOCKS, BLOCK_SIZE: tl.constexpr):
    """Copy whole blocks, which programs take in turns."""
    step = tl.num_programs(0)
    for block in tl.range(tl.program_id(0), BLOCKS, step):
        at = block * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        tl.store(out_ptr + at, tl.load(x_ptr + OFFSET + at))


@triton.jit
def muladd_rows_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    FACTOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """Scale rows and add others, a row at a time, which programs take in turns."""
    first, step = tl.program_id(0), tl.num_programs(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < COLS
    at = first * COLS + cols
    for row in tl.range(first, ROWS, step):
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        y = tl.load(y_ptr + at, mask=mask, other=0.0)
        tl.store(out_ptr + row * COLS + cols, x * FACTOR + y, mask=mask)
        at += step * COLS
