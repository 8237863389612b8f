"""Quantisation of rows to int8 or float8_e4m3fn (the flag `to`), with a scale per row or per block of 128 columns.

A scale is the largest magnitude of its numbers over the largest number of the quantised dtype, and a number is divided
by its scale and rounded to nearest, ties to even. Where all are 0, so are the results. Inputs are finite.

`per_token_quant`: `one_load` reads a row once and needs all of it on chip; `looped` reads it twice, in blocks of
columns. `per_block_quant` reads everything once; the last block of a row may be shorter. float8 needs an NVIDIA GPU of
compute capability 8.9 or later: the Ascend compiler has no such type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewise.kernels.candidate_values import powers_of_two
from tilewise.kernels.spec import (
    Axis,
    Buffer,
    Config,
    Constraint,
    Flag,
    KernelSpec,
    Launch,
    Parameter,
    Problem,
    Target,
    Tensors,
    Tiling,
    Value,
    ceil_div,
)
from tilewise.kernels.vector.row_tiles import (
    DTYPES,
    MULTIBUFFER,
    NUM_STAGES,
    NUM_WARPS,
    SHARED_ROWS,
    default_rows,
    looped_default,
    looped_parameters,
    padded,
    row_constraints,
    warps_for,
)

__all__ = ["GROUP", "PER_BLOCK", "PER_TOKEN"]

GROUP = 128
"""Columns that share a scale in `per_block_quant`, as in DeepSeek-V3's activations."""

_TINY = 1e-30
"""The least magnitude that a scale is made for, as in the kernels."""

_LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0}
_TO = Flag("to", ("int8", "float8_e4m3fn"))

_NEAREST = 0.5 + 127 * 2.0**-15
"""Largest distance of an integer from the exact quotient: half a step, and what float32 arithmetic adds to it near the
middle between two integers."""

_JIT = "tilewise.kernels.jit.quantize:quantize_"
_ONE_LOAD, _LOOPED, _BLOCKS = (f"{_JIT}{name}_kernel" for name in ("rows_one_load", "rows_looped", "blocks"))


def _buffers(scales: Callable[[int], int]) -> Callable[[Problem], Mapping[str, Buffer]]:
    """Return the buffers, with `scales(N)` scales per row."""

    def buffers(problem: Problem) -> Mapping[str, Buffer]:
        m, n, to = problem.dims["M"], problem.dims["N"], str(_TO.of(problem))
        return {
            "x_ptr": Buffer((m, n), problem.dtype),
            "out_ptr": Buffer((m, n), to, role="out", tolerance=_NEAREST if to == "int8" else 0.0),
            "scale_ptr": Buffer((m, scales(n)), "float32", role="out"),
        }

    return buffers


def _largest(problem: Problem) -> float:
    return _LARGEST[str(_TO.of(problem))]


def _quantised(x: Any, to: str) -> tuple[Any, Any]:
    """Return the quotients of the last axis and their scales. float64 is not rounded: the exact quotient says how far
    off each of its neighbours is."""
    import torch

    scale = x.abs().amax(-1, keepdim=True).clamp(min=_TINY) / _LARGEST[to]
    quotient = x / scale
    if x.dtype is not torch.float64:
        quotient = (quotient.round() if to == "int8" else quotient).to(getattr(torch, to))
    return quotient, scale.squeeze(-1)


def _offered(config: Config, problem: Problem, target: Target) -> bool:
    return _TO.of(problem) == "int8" or target.has_float8


_HAS_DTYPE = Constraint("to=float8_e4m3fn needs an NVIDIA GPU of compute capability 8.9 or later", _offered)


def _one_row(config: Config, problem: Problem, target: Target) -> bool:
    return target.family != "ascend" or int(config["SUB_BLOCK_SIZE_M"]) == 1


_ONE_ROW = Constraint("one row at a time on Ascend, which takes several rows of int8 as a multiple of 32", _one_row)


# A scale per row -------------------------------------------------------------------------------------------------


def _token_launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, n, cols = problem.dims["M"], problem.dims["N"], int(config["BLOCK_SIZE_N"])
    grid = (ceil_div(m, int(config["BLOCK_SIZE_M"])),)
    fixed: dict[str, Value] = {"FITS_M": int(config["SUB_BLOCK_SIZE_M"]) <= m, "LARGEST": _largest(problem)}
    if config["VARIANT"] == "one_load":
        return [Launch(_ONE_LOAD, grid, {**fixed, "FITS_N": cols == n})]
    return [Launch(_LOOPED, grid, {**fixed, "EVEN_N": n % cols == 0})]


def _token_tiling(config: Config, problem: Problem) -> Tiling:
    rows, cols, item = int(config["SUB_BLOCK_SIZE_M"]), int(config["BLOCK_SIZE_N"]), problem.item_bytes
    m, n, looped = problem.dims["M"], problem.dims["N"], config["VARIANT"] == "looped"
    tile = rows * padded(cols, 1)
    return Tiling(
        axes=(Axis("M", m, int(config["BLOCK_SIZE_M"]), rows), Axis("N", n, n, cols)),
        streamed_bytes=tile * (item + 1),
        resident_bytes=tile * ((33 if looped else 12) + 4 * (item < 4)),
        traffic=(2 * item + 1) / (item + 1) if looped else 1.0,
        reductions=1,
        operations=2,
        moved_back=rows <= m,
    )


def _token_reference(inputs: Tensors, problem: Problem) -> Tensors:
    out, scale = _quantised(inputs["x_ptr"], str(_TO.of(problem)))
    return {"out_ptr": out, "scale_ptr": scale[:, None]}


PER_TOKEN = KernelSpec(
    name="per_token_quant",
    summary="out[m, n] = x[m, n] / scale[m] as `to`, with scale[m] = maximum over k of abs(x[m, k]) / largest of `to`",
    function=(_ONE_LOAD, _LOOPED),
    dims=("M", "N"),
    dtypes=DTYPES,
    flags=(_TO,),
    parameters=looped_parameters(),
    constraints=(_HAS_DTYPE, _ONE_ROW, *row_constraints(_token_tiling, looped=True)),
    buffers=_buffers(lambda n: 1),
    scalars=lambda problem: dict(problem.dims),
    launches=_token_launches,
    tiling=_token_tiling,
    reference=_token_reference,
    flops=lambda problem: 4 * problem.dims["M"] * problem.dims["N"],
    default=looped_default(_token_tiling),
)


# A scale per block of a row --------------------------------------------------------------------------------------


def _groups(n: int) -> int:
    return ceil_div(n, GROUP)


def _columns(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the blocks of columns: whole groups, in powers of two."""
    n = problem.dims["N"]
    blocks = powers_of_two(GROUP, min(8192, _groups(n) * GROUP))
    return [cols for cols in blocks if cols == GROUP or cols <= n]


def _block_launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, n = problem.dims["M"], problem.dims["N"]
    block, sub, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"))
    fits = {"FITS_M": sub <= m, "FITS_N": n % GROUP == 0 and cols <= n}
    grid = (ceil_div(m, block) * ceil_div(n, cols),)
    return [Launch(_BLOCKS, grid, {**fits, "LARGEST": _largest(problem), "GROUP": GROUP})]


def _block_tiling(config: Config, problem: Problem) -> Tiling:
    block, sub, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"))
    m, n, item = problem.dims["M"], problem.dims["N"], problem.item_bytes
    return Tiling(
        axes=(Axis("M", m, block, sub), Axis("N", n, cols, cols)),
        streamed_bytes=sub * cols * (item + 1),
        resident_bytes=sub * cols * (32 + 4 * (item < 4)),
        reductions=1,
        operations=2,
        moved_back=sub <= m,
    )


def _block_reference(inputs: Tensors, problem: Problem) -> Tensors:
    import torch

    x = inputs["x_ptr"]
    m, n = x.shape
    grouped = torch.nn.functional.pad(x, (0, _groups(n) * GROUP - n)).reshape(m, -1, GROUP)
    out, scale = _quantised(grouped, str(_TO.of(problem)))
    return {"out_ptr": out.reshape(m, -1)[:, :n], "scale_ptr": scale}


def _block_default(problem: Problem, target: Target) -> Config:
    cols = max(int(c) for c in _columns(problem, target) if int(c) in (GROUP, 256, 512, 1024))
    parts = ceil_div(problem.dims["N"], cols)
    tiles: dict[str, Value] = {**default_rows(problem, target, cols, parts), "BLOCK_SIZE_N": cols}
    if target.family == "ascend":
        return {**tiles, "multibuffer": True}
    return {**tiles, "num_warps": warps_for(int(tiles["SUB_BLOCK_SIZE_M"]) * cols), "NUM_STAGES": 1}


PER_BLOCK = KernelSpec(
    name="per_block_quant",
    summary=f"per_token_quant with a scale for each {GROUP} columns of a row",
    function=(_BLOCKS,),
    dims=("M", "N"),
    dtypes=DTYPES,
    flags=(_TO,),
    parameters=(*SHARED_ROWS, Parameter("BLOCK_SIZE_N", _columns), MULTIBUFFER, NUM_WARPS, NUM_STAGES),
    constraints=(_HAS_DTYPE, _ONE_ROW, *row_constraints(_block_tiling)),
    buffers=_buffers(_groups),
    scalars=lambda problem: dict(problem.dims),
    launches=_block_launches,
    tiling=_block_tiling,
    reference=_block_reference,
    flops=lambda problem: 4 * problem.dims["M"] * problem.dims["N"],
    default=_block_default,
)
