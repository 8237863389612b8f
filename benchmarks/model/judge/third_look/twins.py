"""The specs of the kernels of the third look: buffers, arguments and grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tilewise.benchmarks.model.judge.third_look import element_kernels as element
from tilewise.benchmarks.model.judge.twins import twin
from tilewise.kernels.spec import Config, KernelSpec, ceil_div

__all__ = ["MULADD_ROWS", "NARROW_DIVIDE", "NARROW_RUNS", "NARROW_SLAB", "NARROW_TURNS"]

_Dims = Mapping[str, int]
_Shapes = Mapping[str, tuple[int, ...]]

_DTYPES = ("float32", "float16", "bfloat16")


def _typed(
    function: Any,
    dims: tuple[str, ...],
    shapes: Callable[[_Dims, Config], _Shapes],
    grid: Callable[[Config, _Dims], tuple[int, ...]],
) -> KernelSpec:
    """Return a twin that takes bfloat16 too."""
    return replace(twin(function, dims, shapes, grid), dtypes=_DTYPES)


def _middle(dims: _Dims, config: Config) -> _Shapes:
    return {"x_ptr": (dims["DIM"], dims["POST"]), "out_ptr": (dims["LENGTH"], dims["POST"])}


def _blocks(config: Config, dims: _Dims) -> tuple[int, ...]:
    return (ceil_div(dims["TOTAL"], int(config["BLOCK_SIZE"])),)


NARROW_DIVIDE = _typed(element.narrow_divide_kernel, ("TOTAL", "DIM", "POST", "START", "LENGTH"), _middle, _blocks)
NARROW_SLAB = _typed(element.narrow_slab_kernel, ("TOTAL", "DIM", "POST", "START", "LENGTH"), _middle, _blocks)
NARROW_RUNS = _typed(
    element.narrow_runs_kernel,
    ("OFFSET", "RUN", "ROW", "SEGMENTS"),
    lambda dims, config: {"x_ptr": (dims["ROW"],), "out_ptr": (dims["RUN"],)},
    lambda config, dims: (dims["SEGMENTS"],),
)
NARROW_TURNS = _typed(
    element.narrow_turns_kernel,
    ("N", "WHOLE", "OFFSET", "BLOCKS", "PROGRAMS"),
    lambda dims, config: {"x_ptr": (dims["WHOLE"],), "out_ptr": (dims["N"],)},
    lambda config, dims: (dims["PROGRAMS"],),
)
MULADD_ROWS = _typed(
    element.muladd_rows_kernel,
    ("ROWS", "COLS", "PROGRAMS"),
    lambda dims, config: dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), (dims["ROWS"], dims["COLS"])),
    lambda config, dims: (dims["PROGRAMS"],),
)
