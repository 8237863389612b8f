"""The contract between a kernel and the tuner.

A `KernelSpec` says all that tuning needs to know of a Triton function. It is data and small pure functions; it
imports neither torch nor triton, and it names its function by text (`"package.module:function"`) unless it stands in
the same file as the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tilewise.db.records import ITEM_BYTES, Config, Problem, Value
from tilewise.errors import BadSpec
from tilewise.kernels.validated_callback import cut, validated

__all__ = [
    "ITEM_BYTES",
    "Axis",
    "Buffer",
    "Config",
    "Constraint",
    "KernelSpec",
    "Launch",
    "Parameter",
    "Problem",
    "Target",
    "Tensors",
    "Tiling",
    "Value",
    "ceil_div",
]

Tensors = Mapping[str, Any]
"""Torch tensors by argument name; `Any`, so that specs need no torch."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Target:
    """What a spec may ask about the device it is tuned for.

    `cores` run programs at once (vector cores on Ascend, multiprocessors on NVIDIA). `on_chip_bytes` is what one core
    offers a program's tiles (the unified buffer on Ascend, shared memory on NVIDIA). `max_programs` limits the
    product of the grid.
    """

    family: Literal["ascend", "nvidia"]
    name: str
    cores: int
    on_chip_bytes: int
    align_bytes: int
    max_programs: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor argument: contiguous, of `shape` (elements) and `dtype`.

    `in` buffers hold random data; `out` buffers are poisoned before a checked run; `inout` buffers hold random data
    that is restored before each run. `initial` marks an output that the kernel accumulates into: every element is set
    to it before *every* run, timed or not. `draw(tensor, generator)` fills a tensor with random data in place, from a
    torch generator of its device, where the standard normal would show nothing (a product of normals underflows).
    `scale` is the size that an output's elements have by rights, where the few of them may lie near zero by chance (one
    sum of N normals is about sqrt(N)): deviations are measured in it where it is more than the reference's RMS.
    """

    shape: tuple[int, ...]
    dtype: str
    role: Literal["in", "out", "inout"] = "in"
    initial: float | None = None
    draw: Callable[[Any, Any], None] | None = None
    scale: float = 0.0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One tile parameter (`constexpr`) or compile option (`option`: `num_warps`, `multibuffer`, ...).

    `values(problem, target)` lists what it may be, in a meaningful order for numbers; an empty list means that the
    parameter does not exist on that target.
    """

    name: str
    values: Callable[[Problem, Target], Sequence[Value]]
    role: Literal["constexpr", "option"] = "constexpr"

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "values", validated(f"values(problem, target) of parameter {self.name}", self.values, _values)
        )
        if self.role not in ("constexpr", "option"):
            raise BadSpec(f"parameter {self.name} has the role {cut(self.role)}; expected 'constexpr' or 'option'")


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a config must satisfy before anything is compiled; `rule` is the text shown when it does not."""

    rule: str
    holds: Callable[[Config, Problem, Target], bool]

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", validated(f"the constraint {self.rule!r}", self.holds, _truth))


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a config that takes several: one of the spec's functions over a grid.

    The function's arguments are taken by name from `constants`, the buffers and scratch, the scalars and the config.
    """

    function: Any
    grid: tuple[int, ...]
    constants: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension cut up: each program takes `block` of its `size`, in trips of `step`."""

    name: str
    size: int
    block: int
    step: int

    @property
    def programs(self) -> int:
        return ceil_div(self.size, self.block)

    @property
    def taken(self) -> int:
        """Elements of one full program."""
        return min(self.block, self.size)

    @property
    def trips(self) -> int:
        """Trips of one full program."""
        return ceil_div(self.taken, self.step)

    @property
    def tail(self) -> int:
        """Elements of a full program's last trip that are computed but not needed."""
        return self.trips * self.step - self.taken


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a config cuts the work up, outermost axis first; the last axis is contiguous in memory.

    No axes: how the kernel cuts its work up is not known, and there is no prior.

    `streamed_bytes` is what one trip loads, which double buffering keeps twice; `resident_bytes` is what else must be
    on chip during a trip (accumulators, temporaries, operands that stay). `traffic` is what all of the config's
    launches move through global memory, as a multiple of the least: more than 1 where data is read again.

    For Ascend: `doubling_bytes` is what double buffering adds where memory is tight, less than `streamed_bytes` where
    the second buffers lie in what temporaries leave free (None: all of it). `reductions` are those along the last axis
    in one trip of the outermost loop, `operations` the vector operations on each element beyond the problem's `flops`.
    `moved_back`: a trip that would reach over an edge starts earlier instead; else its tile is filled with what changes
    nothing before it is loaded. `first_apart`: the inner loops' first tile has a buffer of its own, so that its load
    and the next one wait for nothing. `in_place`: what a trip stores is made in the buffer that was loaded, which is
    free again only after the store.
    """

    axes: tuple[Axis, ...]
    streamed_bytes: int
    resident_bytes: int
    traffic: float = 1.0
    doubling_bytes: int | None = None
    reductions: int = 0
    operations: float = 0.0
    moved_back: bool = False
    first_apart: bool = False
    in_place: bool = False

    @property
    def programs(self) -> int:
        return math.prod(axis.programs for axis in self.axes)

    @property
    def trips(self) -> int:
        return math.prod(axis.trips for axis in self.axes)


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """A kernel that can be tuned.

    - `function`: the `triton.jit` function, or `"package.module:function"` naming it; a tuple of them where a config
      may launch several, or one of several.
    - `buffers(problem)`, `scalars(problem)`: the run-time arguments by name; with the `constexpr` parameters they are
      all of the function's arguments.
    - `grid(config, problem)`: programs along each grid axis, for a kernel of one function. A kernel of several has
      `launches(config, problem)` instead: what to launch, in order. A config's time is that of all its launches.
    - `scratch(config, problem)`: buffers between its launches (partial results), written before they are read.
    - `tiling(config, problem)`: the launch that does most of the work as the prior sees it; `tiling.programs` equals
      its grid's product.
    - `reference(inputs)`: what the outputs must be, by argument name, in torch operations that keep the dtype they
      are given. It is called on float64 tensors to judge a config, and on the problem's dtype as the eager baseline.
    - `flops(problem)`: floating-point operations the problem needs, for the roofline.
    - `default(problem, target)`: what one would launch without tuning; a space given by `configs` may have
      none (empty).
    - `configs(problem, target)`: the valid configs themselves, where they are known one by one (a recorded space)
      rather than as the combinations that satisfy `constraints`.
    """

    name: str
    summary: str
    function: Any
    dims: tuple[str, ...]
    dtypes: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    buffers: Callable[[Problem], Mapping[str, Buffer]]
    scalars: Callable[[Problem], Mapping[str, int | float]]
    tiling: Callable[[Config, Problem], Tiling]
    reference: Callable[[Tensors], Tensors]
    flops: Callable[[Problem], int]
    default: Callable[[Problem, Target], Config]
    grid: Callable[[Config, Problem], tuple[int, ...]] | None = None
    launches: Callable[[Config, Problem], Sequence[Launch]] | None = None
    scratch: Callable[[Config, Problem], Mapping[str, Buffer]] = lambda config, problem: {}
    constraints: tuple[Constraint, ...] = ()
    configs: Callable[[Problem, Target], Sequence[Config]] | None = None
    origin: str = ""
    """How another process finds this spec again: a registered name or `path/to/file.py:SPEC`; set on loading."""

    def __post_init__(self) -> None:
        """Raises `BadSpec` for fields of another kind; what the functions answer is checked whenever they are asked."""
        if (self.grid is None) == (self.launches is None) or isinstance(self.function, tuple) != (self.grid is None):
            raise BadSpec(f"kernel {self.name} needs one function and a grid, or a tuple of them and launches")
        for name, kind in _TUPLES.items():
            _require_tuple(f"{name} of kernel {self.name}", getattr(self, name), kind)
        if unknown := [dtype for dtype in self.dtypes if dtype not in ITEM_BYTES]:
            raise BadSpec(f"kernel {self.name} takes {', '.join(unknown)}; known dtypes: {', '.join(ITEM_BYTES)}")
        for name, (given, wrong) in _ANSWERS.items():
            function = getattr(self, name)
            if function is not None or name not in ("grid", "launches", "configs"):
                more = {"spared": _may_be_a_devices} if name == "reference" else {}
                object.__setattr__(
                    self, name, validated(f"{name}({given}) of kernel {self.name}", function, wrong, **more)
                )

    def to_json(self) -> dict[str, Any]:
        """What can be tuned, as the command line and the REST service list it."""
        parameters = [parameter.name for parameter in self.parameters]
        listed = {"dims": list(self.dims), "dtypes": list(self.dtypes), "parameters": parameters}
        return {"name": self.name, "summary": self.summary, **listed}

    def functions(self) -> tuple[Any, ...]:
        """Every function that some config launches."""
        return self.function if isinstance(self.function, tuple) else (self.function,)

    def plan(self, config: Config, problem: Problem) -> tuple[Launch, ...]:
        """The config's launches, in order."""
        if self.launches is not None:
            return tuple(self.launches(config, problem))
        assert self.grid is not None, "__post_init__ requires one or the other"
        return (Launch(self.function, tuple(self.grid(config, problem))),)

    def bytes(self, problem: Problem) -> int:
        """The least bytes through global memory: each input read once, each output written once."""
        return sum(buffer.bytes * (2 if buffer.role == "inout" else 1) for buffer in self.buffers(problem).values())

    def options(self) -> frozenset[str]:
        """Names of the parameters that are compile options rather than arguments."""
        return frozenset(p.name for p in self.parameters if p.role == "option")


# What is wrong with fields and answers ---------------------------------------------------------------------------

_TUPLES: dict[str, type] = {"dims": str, "dtypes": str, "parameters": Parameter, "constraints": Constraint}


def _require_tuple(what: str, value: object, kind: type) -> None:
    if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
        one = "a string" if kind is str else f"a {kind.__name__}"
        raise BadSpec(f"{what} is {cut(value)}; expected a tuple, each item {one} (a tuple of one ends in a comma)")


def _values(values: object) -> str:
    if isinstance(values, Sequence) and not isinstance(values, str) and all(isinstance(v, Value) for v in values):
        return ""
    return f"{cut(values)}; expected a list of numbers, strings or truth values"


def _truth(held: object) -> str:
    return "None; expected True or False" if held is None else ""


def _buffers(buffers: object) -> str:
    if not isinstance(buffers, Mapping) or not all(isinstance(buffer, Buffer) for buffer in buffers.values()):
        return f"{cut(buffers)}; expected a Buffer for each name"
    return next(filter(None, (_buffer(name, buffer) for name, buffer in buffers.items())), "")


def _buffer(name: str, buffer: Buffer) -> str:
    if not isinstance(buffer.shape, tuple) or not all(isinstance(size, int) and size > 0 for size in buffer.shape):
        return f"{name} the shape {cut(buffer.shape)}; expected a tuple of sizes from 1"
    if buffer.dtype not in ITEM_BYTES:
        return f"{name} the dtype {cut(buffer.dtype)}; expected one of {', '.join(ITEM_BYTES)}"
    return (
        ""
        if buffer.role in ("in", "out", "inout")
        else f"{name} the role {cut(buffer.role)}; expected in, out or inout"
    )


def _numbers(scalars: object) -> str:
    fits = isinstance(scalars, Mapping) and all(isinstance(value, int | float) for value in scalars.values())
    return "" if fits else f"{cut(scalars)}; expected a number for each name"


def _grid(grid: object) -> str:
    fits = isinstance(grid, Sequence) and 1 <= len(grid) <= 3 and all(isinstance(n, int) and n > 0 for n in grid)
    return "" if fits else f"the grid {cut(grid)}; expected a tuple of one to three whole numbers from 1"


def _launches(launches: object) -> str:
    if not isinstance(launches, Sequence) or not all(isinstance(launch, Launch) for launch in launches):
        return f"{cut(launches)}; expected a list of Launch"
    return next(filter(None, (_grid(launch.grid) for launch in launches)), "")


def _outputs(outputs: object) -> str:
    fits = isinstance(outputs, Mapping) and all(hasattr(tensor, "requires_grad") for tensor in outputs.values())
    return "" if fits else f"{cut(outputs)}; expected a torch tensor for each output's name"


def _may_be_a_devices(error: Exception, given: tuple[Any, ...]) -> bool:
    """Memory that runs out, or a fault of the kernel before, shows as such an error in whatever torch does next."""
    return isinstance(error, RuntimeError) and any(tensor.device.type != "cpu" for tensor in given[0].values())


def _only(kind: Any, expected: str) -> Callable[[object], str]:
    return lambda answer: "" if isinstance(answer, kind) else f"{cut(answer)}; expected {expected}"


_ANSWERS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "buffers": ("problem", _buffers),
    "scalars": ("problem", _numbers),
    "grid": ("config, problem", _grid),
    "launches": ("config, problem", _launches),
    "scratch": ("config, problem", _buffers),
    "tiling": ("config, problem", _only(Tiling, "a Tiling")),
    "reference": ("inputs", _outputs),
    "flops": ("problem", _only(int | float, "a number")),
    "default": ("problem, target", _only(Mapping, "a value for each parameter")),
    "configs": ("problem, target", _only(Sequence, "a list of configs")),
}
"""What each function of a spec is given, and what is wrong with its answer; empty where that is as it should be."""
