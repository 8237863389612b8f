"""The specs of the kernels of published timings that no search tunes: buffers, arguments and grids, no search space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewise.benchmarks.model.judge import element_kernels as element
from tilewise.benchmarks.model.judge import row_kernels as row
from tilewise.kernels.spec import Buffer, Config, KernelSpec, Launch, Parameter, Problem, Tiling, ceil_div

__all__ = [
    "ADD",
    "CUMSUM",
    "DIVIDE_ROWS",
    "GELU",
    "GELU_ROWS",
    "INSTANCE_NORM",
    "L1_NORM",
    "LAYER_NORM",
    "MASKED_CUMSUM",
    "RELU_ROWS",
    "RMS_NORM",
    "SCALE",
    "SCALE_ROWS",
    "SIGMOID",
    "SILU_ROWS",
    "SOFTMAX",
    "SOFTSIGN",
    "SUM_FUSED",
    "SUM_MIDDLE",
    "TANH",
    "TOUCH",
    "twin",
]

_Dims = Mapping[str, int]
_Shapes = Mapping[str, tuple[int, ...]]

_VECTOR_CORES = 48
"""Vector cores of the 910B2C, whose kernels launch no more programs."""

_DTYPES = {"mask_ptr": "int8", "index_ptr": "int32"}
"""Dtypes of buffers that do not have the problem's."""


def twin(
    function: Any,
    dims: tuple[str, ...],
    shapes: Callable[[_Dims, Config], _Shapes],
    grid: Callable[[Config, _Dims], tuple[int, ...]],
    scalars: Mapping[str, float] | None = None,
    then: Any = None,
) -> KernelSpec:
    """Make a spec. `shapes` gives the buffers in argument order, the last one the output; dims and config entries that
    are constexpr arguments are passed as such, other dims as run-time arguments. `then` is a second function, launched
    as one program."""
    functions = (function, then) if then else (function,)
    constant = {parameter.name for each in functions for parameter in each.params if parameter.is_constexpr}
    passed = [name for name in dims if name in function.arg_names and name not in constant]

    def launches(config: Config, problem: Problem) -> list[Launch]:
        grids = [grid(config, problem.dims), (1,)]
        return [
            Launch(each, each_grid, _sizes(each, problem)) for each, each_grid in zip(functions, grids, strict=False)
        ]

    def buffers(problem: Problem) -> Mapping[str, Buffer]:
        found = shapes(problem.dims, {})
        *inputs, out = found
        made = {name: Buffer(found[name], _DTYPES.get(name, problem.dtype)) for name in inputs}
        return {**made, out: Buffer(found[out], _DTYPES.get(out, problem.dtype), role="out")}

    return KernelSpec(
        name=function.__name__.removesuffix("_kernel"),
        summary="a kernel of published timings",
        function=functions,
        dims=dims,
        dtypes=("float32", "float16"),
        parameters=(
            *(Parameter(name, lambda problem, target: []) for name in sorted(constant - set(dims))),
            Parameter("multibuffer", lambda problem, target: [True, False], role="option"),
        ),
        buffers=buffers,
        scalars=lambda problem: {**{name: problem.dims[name] for name in passed}, **(scalars or {})},
        launches=launches,
        tiling=lambda config, problem: Tiling((), 0, 0),
        reference=lambda inputs: {},
        flops=lambda problem: 1,
        default=lambda problem, target: {"multibuffer": True},
    )


def _sizes(function: Any, problem: Problem) -> dict[str, int]:
    constant = {parameter.name for parameter in function.params if parameter.is_constexpr}
    return {name: size for name, size in problem.dims.items() if name in constant}


def _same(*names: str) -> Callable[[_Dims, Config], _Shapes]:
    """Return the shapes of a kernel whose inputs and output are vectors or matrices of the same size as all dims."""
    return lambda dims, config: dict.fromkeys((*names, "out_ptr"), tuple(dims.values()))


def _blocks(config: Config, dims: _Dims) -> tuple[int, ...]:
    return (ceil_div(dims["n"], int(config["BLOCK_SIZE"])),)


def _cores(config: Config, dims: _Dims) -> tuple[int, ...]:
    return (int(config["NUM_CORES"]),)


def _turns(config: Config, dims: _Dims) -> tuple[int, ...]:
    return (min(_VECTOR_CORES, ceil_div(dims["M"], int(config["BLOCK_SIZE_M"]))),)


def _normed(*weights: str) -> Callable[[_Dims, Config], _Shapes]:
    def shapes(dims: _Dims, config: Config) -> _Shapes:
        matrix = (dims["M"], dims["N"])
        return {"x_ptr": matrix, **dict.fromkeys(weights, (dims["N"],)), "out_ptr": matrix}

    return shapes


SIGMOID = twin(element.sigmoid_kernel, ("n",), _same("x_ptr"), _cores)
SCALE = twin(element.scale_kernel, ("n",), _same("x_ptr"), _blocks, {"s": 3.14})
TANH = twin(element.tanh_kernel, ("n",), _same("x_ptr"), _blocks)
GELU = twin(element.gelu_kernel, ("n",), _same("x_ptr"), _blocks)
SOFTSIGN = twin(element.softsign_kernel, ("n",), _same("x_ptr"), _blocks)
RELU_ROWS = twin(element.relu_rows_kernel, ("B", "N"), _same("x_ptr"), _cores)
GELU_ROWS = twin(element.gelu_rows_kernel, ("M", "N"), _same("x_ptr"), _turns)
SILU_ROWS = twin(element.silu_rows_kernel, ("M", "N"), _same("x_ptr"), _turns)
DIVIDE_ROWS = twin(
    element.divide_rows_kernel,
    ("B", "HW"),
    lambda dims, config: {"x_ptr": (dims["B"], dims["HW"]), "d_ptr": (dims["HW"],), "out_ptr": (dims["B"], dims["HW"])},
    _cores,
)
SCALE_ROWS = twin(
    element.scale_rows_kernel,
    ("N", "M"),
    lambda dims, config: {"d_ptr": (dims["N"],), "x_ptr": (dims["N"], dims["M"]), "out_ptr": (dims["N"], dims["M"])},
    _cores,
)
ADD = twin(element.add_kernel, ("n",), _same("x_ptr", "y_ptr"), lambda config, dims: (int(config["CORES"]),))
TOUCH = twin(
    element.touch_kernel,
    ("PROGRAMS", "ROWS", "N", "SHARERS", "TIMES", "PARTS"),
    lambda dims, config: {
        "x_ptr": (dims["ROWS"] * dims["PROGRAMS"] // dims["SHARERS"], dims["N"]),
        "out_ptr": (dims["PROGRAMS"], 64 * 1024),
    },
    lambda config, dims: (dims["PROGRAMS"],),
)
SUM_FUSED = twin(
    row.sum_fused_kernel,
    ("M", "N"),
    lambda dims, config: {"x_ptr": (dims["M"], dims["N"]), "w_ptr": (dims["N"],), "out_ptr": (dims["M"],)},
    lambda config, dims: (ceil_div(dims["M"], int(config["BLOCK_SIZE_M"])),),
)
SUM_MIDDLE = twin(
    row.sum_middle_kernel,
    ("B", "M", "N"),
    lambda dims, config: {"x_ptr": (dims["B"], dims["M"], dims["N"]), "out_ptr": (dims["B"], dims["N"])},
    _cores,
)
CUMSUM = twin(row.cumsum_kernel, ("B", "N"), _same("x_ptr"), _cores)
MASKED_CUMSUM = twin(row.masked_cumsum_kernel, ("B", "N"), _same("x_ptr", "mask_ptr"), _cores)
SOFTMAX = twin(row.softmax_kernel, ("B", "N"), _same("x_ptr"), _cores)
L1_NORM = twin(row.l1_norm_kernel, ("B", "D"), _same("x_ptr"), _cores)
INSTANCE_NORM = twin(
    row.instance_norm_kernel,
    ("B", "C", "H", "W"),
    _same("x_ptr"),
    lambda config, dims: (dims["B"], dims["C"]),
    {"eps": 1e-5},
)
LAYER_NORM = twin(row.layer_norm_kernel, ("M", "N"), _normed("w_ptr", "b_ptr"), _turns, {"eps": 1e-5})
RMS_NORM = twin(row.rms_norm_kernel, ("M", "N"), _normed("w_ptr"), _turns, {"eps": 1e-5})
