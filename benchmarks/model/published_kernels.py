"""The kernels of the published timings, written from their descriptions, for comparison with the model only.

Minima propagate NaN, as in torch. On Ascend that is one instruction. The plain minimum, which the published kernels
used, has since become four, so it would no longer be the code that was timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import triton
import triton.language as tl

from tilewise.kernels.spec import Axis, Buffer, Config, KernelSpec, Parameter, Problem, Tensors, Tiling, ceil_div

__all__ = ["DIV_BROADCAST_ROWS", "MEAN_ROWS", "MIN_ALL_LARGE", "MIN_ALL_SMALL", "SUM_ROWS_TALL"]


@triton.jit
def _minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def mean_rows_kernel(
    x_ptr,
    out_ptr,
    M,
    N,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
):
    """Reduce each column step at once."""
    first = tl.program_id(0) * BLOCK_SIZE_M
    end = tl.minimum(first + BLOCK_SIZE_M, M)
    for start in range(0, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M):
        rows = first + start + tl.arange(0, SUB_BLOCK_SIZE_M)
        total = tl.zeros([SUB_BLOCK_SIZE_M], dtype=tl.float32)
        for left in range(0, N, BLOCK_SIZE_N):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            mask = (rows < end)[:, None] & (cols < N)[None, :]
            total += tl.sum(tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0), axis=1)
        tl.store(out_ptr + rows, total / N, mask=rows < end)


@triton.jit
def min_tile_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    """Reduce one tile per program."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + at, mask=at < n, other=float("inf"))
    tl.atomic_min(out_ptr, tl.reduce(x, 0, _minimum))


@triton.jit
def min_loop_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr, SUB_BLOCK_SIZE: tl.constexpr):
    """Reduce one block per program, in steps, into an accumulator."""
    first = tl.program_id(0) * BLOCK_SIZE
    end = tl.minimum(first + BLOCK_SIZE, n)
    least = tl.full([SUB_BLOCK_SIZE], float("inf"), dtype=tl.float32)
    for start in range(0, BLOCK_SIZE, SUB_BLOCK_SIZE):
        at = first + start + tl.arange(0, SUB_BLOCK_SIZE)
        least = _minimum(least, tl.load(x_ptr + at, mask=at < end, other=float("inf")))
    tl.atomic_min(out_ptr, tl.reduce(least, 0, _minimum))


@triton.jit
def sum_rows_kernel(x_ptr, out_ptr, M, N, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr):
    """Accumulate a tile, and sum it once at the end."""
    rows = tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    total = tl.zeros([BLOCK_SIZE_M, BLOCK_SIZE_N], dtype=tl.float32)
    for left in range(0, N, BLOCK_SIZE_N):
        cols = left + tl.arange(0, BLOCK_SIZE_N)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        total += tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + rows, tl.sum(total, axis=1), mask=rows < M)


@triton.jit
def div_broadcast_rows_kernel(
    x_ptr, d_ptr, out_ptr, M, NUM_BLOCKS: tl.constexpr, SUB_M: tl.constexpr, COLUMNS: tl.constexpr = 16
):
    """Divide rows by a divisor that is loaded once, in a fixed number of programs."""
    each = tl.cdiv(M, NUM_BLOCKS)
    first = tl.program_id(0) * each
    end = tl.minimum(first + each, M)
    cols = tl.arange(0, COLUMNS)
    d = tl.load(d_ptr + cols)
    for start in range(0, each, SUB_M):
        rows = first + start + tl.arange(0, SUB_M)
        at = rows[:, None] * COLUMNS + cols[None, :]
        mask = (rows < end)[:, None] & (cols < COLUMNS)[None, :]
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask, other=0.0) / d[None, :], mask=mask)


# Their specs, without a search space: only the published configs are used ---------------------------------------------


def _spec(
    name: str,
    summary: str,
    function: Any,
    dims: tuple[str, ...],
    *,
    parameters: Sequence[str],
    buffers: Callable[[Problem], Mapping[str, Buffer]],
    axes: Callable[[Config, Problem], tuple[Axis, ...]],
    reference: Callable[..., Tensors] | None,
) -> KernelSpec:
    def tiling(config: Config, problem: Problem) -> Tiling:
        cut = axes(config, problem)
        return Tiling(cut, math.prod(axis.step for axis in cut) * problem.item_bytes, 0)

    scalars = [name for name in dims if name in function.arg_names]
    return KernelSpec(
        name=name,
        summary=summary,
        function=function,
        dims=dims,
        dtypes=("float32", "float16"),
        parameters=tuple(Parameter(parameter, lambda problem, target: []) for parameter in parameters),
        buffers=buffers,
        scalars=lambda problem: {name: problem.dims[name] for name in scalars},
        grid=lambda config, problem: (tiling(config, problem).programs,),
        tiling=tiling,
        reference=reference,
        flops=lambda problem: math.prod(problem.dims.values()),
        default=lambda problem, target: {},
    )


def _rows_to_values(problem: Problem) -> Mapping[str, Buffer]:
    m, n = problem.dims["M"], problem.dims["N"]
    return {"x_ptr": Buffer((m, n), problem.dtype), "out_ptr": Buffer((m,), problem.dtype, role="out")}


def _all_to_least(problem: Problem) -> Mapping[str, Buffer]:
    least = Buffer((1,), problem.dtype, role="out", initial=math.inf)
    return {"x_ptr": Buffer((problem.dims["n"],), problem.dtype), "out_ptr": least}


def _rows_and_divisor(problem: Problem) -> Mapping[str, Buffer]:
    m, n = problem.dims["M"], problem.dims["N"]
    out = Buffer((m, n), problem.dtype, role="out")
    return {"x_ptr": Buffer((m, n), problem.dtype), "d_ptr": Buffer((n,), problem.dtype), "out_ptr": out}


def _axis(problem: Problem, name: str, config: Config, block: str, step: str) -> Axis:
    size = problem.dims[name]
    return Axis(name, size, int(config.get(block, size)), int(config[step]))


MEAN_ROWS = _spec(
    "mean_rows",
    "out[m] = mean over n of x[m, n]",
    mean_rows_kernel,
    ("M", "N"),
    parameters=("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"),
    buffers=_rows_to_values,
    axes=lambda c, p: (_axis(p, "M", c, "BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M"), _axis(p, "N", c, "", "BLOCK_SIZE_N")),
    reference=lambda inputs: {"out_ptr": inputs["x_ptr"].mean(1)},
)

MIN_ALL_SMALL = _spec(
    "min_all_small",
    "out = min of all x[n], one tile per program",
    min_tile_kernel,
    ("n",),
    parameters=("BLOCK_SIZE",),
    buffers=_all_to_least,
    axes=lambda c, p: (_axis(p, "n", c, "BLOCK_SIZE", "BLOCK_SIZE"),),
    reference=lambda inputs: {"out_ptr": inputs["x_ptr"].amin(0, keepdim=True)},
)

MIN_ALL_LARGE = _spec(
    "min_all_large",
    "out = min of all x[n], one block per program, in steps",
    min_loop_kernel,
    ("n",),
    parameters=("BLOCK_SIZE", "SUB_BLOCK_SIZE"),
    buffers=_all_to_least,
    axes=lambda c, p: (_axis(p, "n", c, "BLOCK_SIZE", "SUB_BLOCK_SIZE"),),
    reference=MIN_ALL_SMALL.reference,
)

SUM_ROWS_TALL = _spec(
    "sum_rows_tall",
    "out[m] = sum over n of x[m, n]",
    sum_rows_kernel,
    ("M", "N"),
    parameters=("BLOCK_SIZE_M", "BLOCK_SIZE_N"),
    buffers=_rows_to_values,
    axes=lambda c, p: (_axis(p, "M", c, "BLOCK_SIZE_M", "BLOCK_SIZE_M"), _axis(p, "N", c, "", "BLOCK_SIZE_N")),
    reference=lambda inputs: {"out_ptr": inputs["x_ptr"].sum(1)},
)


def _dealt_rows(config: Config, problem: Problem) -> tuple[Axis, ...]:
    each = ceil_div(problem.dims["M"], int(config["NUM_BLOCKS"]))
    rows = Axis("M", problem.dims["M"], each, int(config["SUB_M"]))
    return rows, Axis("N", problem.dims["N"], problem.dims["N"], problem.dims["N"])


DIV_BROADCAST_ROWS = _spec(
    "div_broadcast_rows",
    "out[m, n] = x[m, n] / d[n], 16 columns",
    div_broadcast_rows_kernel,
    ("M", "N"),
    parameters=("NUM_BLOCKS", "SUB_M"),
    buffers=_rows_and_divisor,
    axes=_dealt_rows,
    reference=lambda inputs: {"out_ptr": inputs["x_ptr"] / inputs["d_ptr"]},
)
