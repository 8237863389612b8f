# ruff: noqa: N803
"""Kernels with one fault each, and a correct one; loaded by path as a user's file would be."""

import os
import time

import triton
import triton.language as tl

from tilewise.kernels.spec import Axis, Buffer, KernelSpec, Parameter, Tiling, ceil_div


@triton.jit
def right_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    first = tl.program_id(0) * ROWS
    end = tl.minimum(first + ROWS, M)
    for start in range(0, ROWS, SUB):
        rows = first + start + tl.arange(0, SUB)
        total = tl.zeros([SUB, COLS], dtype=tl.float32)
        for left in range(0, N, COLS):
            cols = left + tl.arange(0, COLS)
            mask = (rows < end)[:, None] & (cols < N)[None, :]
            total += tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + rows, tl.sum(total, axis=1), mask=rows < end)


@triton.jit
def no_column_mask_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    first = tl.program_id(0) * ROWS
    end = tl.minimum(first + ROWS, M)
    for start in range(0, ROWS, SUB):
        rows = first + start + tl.arange(0, SUB)
        total = tl.zeros([SUB, COLS], dtype=tl.float32)
        for left in range(0, N, COLS):
            cols = left + tl.arange(0, COLS)
            mask = (rows < end)[:, None] & (cols >= 0)[None, :]
            total += tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + rows, tl.sum(total, axis=1), mask=rows < end)


@triton.jit
def no_tail_trip_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    first = tl.program_id(0) * ROWS
    end = tl.minimum(first + ROWS, M)
    for start in range(0, ROWS // SUB * SUB, SUB):
        rows = first + start + tl.arange(0, SUB)
        total = tl.zeros([SUB, COLS], dtype=tl.float32)
        for left in range(0, N, COLS):
            cols = left + tl.arange(0, COLS)
            mask = (rows < end)[:, None] & (cols < N)[None, :]
            total += tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + rows, tl.sum(total, axis=1), mask=rows < end)


@triton.jit
def missing_column_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    first = tl.program_id(0) * ROWS
    end = tl.minimum(first + ROWS, M)
    for start in range(0, ROWS, SUB):
        rows = first + start + tl.arange(0, SUB)
        total = tl.zeros([SUB, COLS], dtype=tl.float32)
        for left in range(0, N, COLS):
            cols = left + tl.arange(0, COLS)
            mask = (rows < end)[:, None] & (cols < N - 1)[None, :]
            total += tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + rows, tl.sum(total, axis=1), mask=rows < end)


@triton.jit
def no_store_mask_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    first = tl.program_id(0) * ROWS
    for start in range(0, ROWS, SUB):
        rows = first + start + tl.arange(0, SUB)
        total = tl.zeros([SUB, COLS], dtype=tl.float32)
        for left in range(0, N, COLS):
            cols = left + tl.arange(0, COLS)
            mask = (rows < M)[:, None] & (cols < N)[None, :]
            total += tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + rows, tl.sum(total, axis=1))


@triton.jit
def crashing_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    os.abort()


@triton.jit
def endless_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    time.sleep(600)


@triton.jit
def failing_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    tl.static_assert(False, "not today")


@triton.jit
def noisy_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    print("a line on stdout")
    os.write(1, b"\x80\x04 bytes that are no protocol\n")
    os.write(2, b"and on stderr\n")
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + rows, tl.sum(x, axis=1), mask=rows < M)


@triton.jit
def bfloat16_arithmetic_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    y = tl.where(x > -x, x + x, x * 2.0)
    tl.store(out_ptr + rows, tl.sum(y.to(tl.float32), axis=1), mask=rows < M)


@triton.jit
def adding_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, SUB: tl.constexpr, COLS: tl.constexpr):
    """Add one row at a time into the output, so that each mask is a single value."""
    for start in range(ROWS):
        rows = tl.program_id(0) * ROWS + start + tl.arange(0, 1)
        for left in range(0, N, COLS):
            cols = left + tl.arange(0, COLS)
            mask = (rows < M)[:, None] & (cols < N)[None, :]
            x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0).to(tl.float32)
            tl.atomic_add(out_ptr + rows, tl.sum(x, axis=1), mask=rows < M)


def _tiling(config, problem):
    m, n = problem.dims["M"], problem.dims["N"]
    axes = (Axis("M", m, config["ROWS"], config["SUB"]), Axis("N", n, n, config["COLS"]))
    return Tiling(axes, streamed_bytes=4, resident_bytes=4)


def _spec(name, function, scale=1, initial=None):
    def buffers(problem):
        m, n = problem.dims["M"], problem.dims["N"]
        output = problem.dtype if initial is None else "float32"
        return {"x_ptr": Buffer((m, n), problem.dtype), "out_ptr": Buffer((m,), output, role="out", initial=initial)}

    return KernelSpec(
        name=name,
        summary="sums of rows",
        function=function,
        dims=("M", "N"),
        dtypes=("float32", "float16", "bfloat16"),
        parameters=tuple(Parameter(p, lambda problem, target: [1, 2, 4, 8, 16]) for p in ("ROWS", "SUB", "COLS")),
        buffers=buffers,
        scalars=lambda problem: dict(problem.dims),
        grid=lambda config, problem: (ceil_div(problem.dims["M"], config["ROWS"]),),
        tiling=_tiling,
        reference=lambda inputs: {"out_ptr": (scale * inputs["x_ptr"]).sum(1)},
        flops=lambda problem: problem.dims["M"] * problem.dims["N"],
        default=lambda problem, target: {"ROWS": 8, "SUB": 4, "COLS": 64},
    )


RIGHT = _spec("right", right_kernel)
NO_COLUMN_MASK = _spec("no_column_mask", no_column_mask_kernel)
NO_TAIL_TRIP = _spec("no_tail_trip", no_tail_trip_kernel)
MISSING_COLUMN = _spec("missing_column", missing_column_kernel)
NO_STORE_MASK = _spec("no_store_mask", no_store_mask_kernel)
CRASHING = _spec("crashing", crashing_kernel)
ENDLESS = _spec("endless", endless_kernel)
FAILING = _spec("failing", failing_kernel)
NOISY = _spec("noisy", noisy_kernel)
BFLOAT16_ARITHMETIC = _spec("bfloat16_arithmetic", bfloat16_arithmetic_kernel, scale=2)
ADDING = _spec("adding", adding_kernel, initial=0.0)
