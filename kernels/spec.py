"""The contract between a kernel and the tuner.

A `KernelSpec` holds all that tuning needs to know about a Triton function, as data and small pure functions. It
imports neither torch nor triton, and refers to its function by text (`"package.module:function"`) unless both are in
the same file.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tilewise.db.records import ENERGY, ITEM_BYTES, OBJECTIVE, Config, Problem, Value
from tilewise.errors import BadSpec
from tilewise.kernels.validated_callback import ValidatedCallback, cut, validated

__all__ = [
    "ITEM_BYTES",
    "WORD",
    "Axis",
    "Buffer",
    "Config",
    "Constraint",
    "Dot",
    "Flag",
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

WORD = re.compile(r"(?!true$|false$)[A-Za-z_][\w.+-]{0,63}", re.ASCII | re.IGNORECASE)
"""A flag's value that is neither a number nor a truth value, and that a query string and a file can hold."""

Tensors = Mapping[str, Any]
"""Torch tensors by argument name, typed `Any` so that specs need not import torch."""


def ceil_div(a: int, b: int) -> int:
    """Return `a / b`, rounded up."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Target:
    """The device that a spec is tuned for, as far as a spec may depend on it.

    `cores` run programs at once (vector cores on Ascend, where `matrix_cores` multiply matrices; multiprocessors on
    NVIDIA). `on_chip_bytes` is the memory of one core for a program's tiles (the unified buffer on Ascend, shared
    memory on NVIDIA). `max_programs` limits the product of the grid. `capability` is NVIDIA's compute capability times
    ten (90 for 9.0), 0 where it is unknown.
    """

    family: Literal["ascend", "nvidia"]
    name: str
    cores: int
    on_chip_bytes: int
    align_bytes: int
    max_programs: int
    capability: int = 0

    @property
    def matrix_cores(self) -> int:
        """Cores that multiply matrices: on Ascend one cube core per two vector cores."""
        return max(1, self.cores // 2) if self.family == "ascend" else self.cores

    @property
    def has_float8(self) -> bool:
        """True on NVIDIA GPUs of compute capability 8.9 or later, and where it is unknown."""
        return self.family == "nvidia" and (self.capability == 0 or self.capability >= 89)


@dataclass(frozen=True, slots=True)
class Flag:
    """A property of a problem that is not a size: `causal=true`, `activation=silu`. The first value is the default.

    The values are False and True, or words. A problem leaves out flags that have their default, so a flag may be added
    to a kernel without touching what is stored for it.
    """

    name: str
    values: tuple[bool | str, ...]

    def __post_init__(self) -> None:
        values = self.values if isinstance(self.values, tuple) else ()
        words = all(isinstance(value, str) and WORD.fullmatch(value) for value in values)
        truths = all(isinstance(value, bool) for value in values)
        if len(set(values)) != len(values) or len(values) < 2 or not (words or truths):
            raise BadSpec(f"flag {self.name} has the values {cut(self.values)}; expected (False, True), or words")

    def of(self, problem: Problem) -> bool | str:
        """Return the flag's value in a problem."""
        return problem.flags.get(self.name, self.values[0])


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor argument of `shape` (elements) and `dtype`, contiguous unless it has `strides` (elements per axis).

    `in` buffers hold random data; `out` buffers are poisoned before a checked run; `inout` buffers hold random data
    that is restored before each run. `initial` marks an output that the kernel accumulates into: every element is set
    to it before *every* run, timed or not. `draw(tensor, generator)` fills a tensor with random data in place, with a
    torch generator of its device, if the standard normal is unsuitable (a product of normals underflows). `scale` is
    the expected magnitude of an output whose few elements may be near zero by chance (one sum of N normals is about
    sqrt(N)). Deviations are measured relative to it where it exceeds the reference's RMS.

    `strides` describe a view, such as a transposed matrix or rows with a gap between them, in which no two elements
    share a place. The kernel and the reference are given the view; a kernel must not touch what lies between.
    `moved_bytes` are the bytes that a launch must move at least, if not all of the buffer's: those that a gather reads.
    `terms` is the number of products or numbers that are added up for one element of an output. `tolerance` is how far
    an output may be off beyond the rounding that `comparison.py` allows: relative to the element or the RMS, whichever
    is larger, or absolute for integers.
    """

    shape: tuple[int, ...]
    dtype: str
    role: Literal["in", "out", "inout"] = "in"
    initial: float | None = None
    draw: Callable[[Any, Any], None] | None = None
    scale: float = 0.0
    strides: tuple[int, ...] | None = None
    moved_bytes: int | None = None
    terms: int = 1
    tolerance: float = 0.0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the elements, without those that lie between them."""
        return self.elements * ITEM_BYTES[self.dtype]

    @property
    def span(self) -> int:
        """Elements from the first to the last one in memory, those between them included."""
        if self.strides is None:
            return self.elements
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def span_bytes(self) -> int:
        return self.span * ITEM_BYTES[self.dtype]

    @property
    def least_bytes(self) -> int:
        """The least bytes that a launch moves: all, or `moved_bytes`, twice if they are read and written."""
        moved = self.bytes if self.moved_bytes is None else self.moved_bytes
        return moved * (2 if self.role == "inout" else 1)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One tile parameter (`constexpr`) or compile option (`option`: `num_warps`, `multibuffer`, ...).

    `values(problem, target)` lists its candidate values, numbers in a meaningful order. An empty list means that the
    parameter does not exist on that target. An option with the value 0 is not passed to the compiler (`maxnreg`: no
    limit).
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
    """A condition that a config must satisfy before it is compiled; `rule` is the text shown if it does not."""

    rule: str
    holds: Callable[[Config, Problem, Target], bool]

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", validated(f"the constraint {self.rule!r}", self.holds, _truth))


@dataclass(frozen=True, slots=True)
class Launch:
    """One of a config's launches: one of the spec's functions over a grid.

    The function's arguments are taken by name from `constants`, the buffers and scratch, the scalars and the config.
    `descriptors`: the function makes tensor descriptors (`tl.make_tensor_descriptor`), which need memory beside the
    arguments; the launch provides an allocator for it.
    `blocks`: buffers that the function takes as tensor descriptors made by the host, each with the block, a size per
    axis, that the function loads or stores. Nothing is made on the device then. A descriptor's axes are in the order of
    the memory, the contiguous one last: those of a transposed buffer and its block are turned.
    """

    function: Any
    grid: tuple[int, ...]
    constants: Mapping[str, Value] = field(default_factory=dict)
    descriptors: bool = False
    blocks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Axis:
    """One tiled dimension of length `size`: each program takes `block` of it, in trips of `step`. An axis that is not a
    dimension, as pages of keys or a product of dimensions, may say `along` which one it grows."""

    name: str
    size: int
    block: int
    step: int
    along: str = ""

    @property
    def programs(self) -> int:
        return ceil_div(self.size, self.block)

    @property
    def taken(self) -> int:
        """Elements per full program."""
        return min(self.block, self.size)

    @property
    def trips(self) -> int:
        """Trips per full program."""
        return ceil_div(self.taken, self.step)

    @property
    def tail(self) -> int:
        """Elements that a full program computes in its last trip without need."""
        return self.trips * self.step - self.taken


@dataclass(frozen=True, slots=True)
class Dot:
    """The matrix product of one trip: an accumulator of `m` x `n` elements in registers, to which `k` products are
    added.

    `stages` is the number of trips whose operands are in shared memory at a time, `shared_bytes` the shared memory
    beside them (an epilogue's tile). `splits` programs share an accumulator's sum. `group` rows of tiles are worked on
    together, so that their operands stay in the L2 cache. `programs` is their number where each works on one tile after
    the other, and 0 where each has one. `filled` is the share of the tiles that there are, if their number depends on
    the data and the grid is for the most. `row_bytes` is the length of the contiguous rows in which a tile of the
    larger operand is loaded, `operand_rows` the number of rows in which those of both are, 0 where it is unknown.
    `along_depth`: those rows lie along the depth, so that the next part of each is loaded a trip later. `described`:
    tiles are loaded through tensor descriptors, which the host makes if they are `handed`. `specialised`: one group of
    warps loads, and `groups` others multiply. `chained`: each trip needs the results of the one before, as attention
    does. `rescaled`: each trip's products are multiplied by scales before they are added up. `alone`: nothing is
    computed beside the product, so that it needs cube cores only on Ascend. Otherwise vector cores do `epilogue`
    operations for each of a tile's sums, or each trip multiplies twice, as attention with heads of `head` elements
    does.
    """

    m: int
    n: int
    k: int
    stages: int = 1
    shared_bytes: int = 0
    splits: int = 1
    group: int = 1
    programs: int = 0
    row_bytes: int = 128
    operand_rows: int = 0
    described: bool = False
    specialised: bool = False
    chained: bool = False
    rescaled: bool = False
    alone: bool = False
    epilogue: float = 0.0
    head: int = 0
    groups: int = 2
    handed: bool = False
    filled: float = 1.0
    along_depth: bool = False


@dataclass(frozen=True, slots=True)
class Tiling:
    """The division of the work by a config, outermost axis first; the last axis is contiguous in memory.

    Without axes the division is unknown, and the prior does not apply.

    `streamed_bytes` are loaded by one trip, and kept twice by double buffering. `resident_bytes` must also be on chip
    during a trip: accumulators, temporaries, operands that stay. `traffic` is the data that all launches of the config
    move through global memory, as a multiple of the least: more than 1 if data is read again. `dot` is the product of
    a kernel whose work is one on matrix units; a batch of products counts as one whose rows are those of all.

    `reductions` counts the reductions along the last axis in one trip of the outermost loop, `operations` the vector
    operations per element beyond the problem's `flops`.

    The rest is for Ascend. `doubling_bytes` is the memory that double buffering adds when memory is tight: less than
    `streamed_bytes` if the second buffers reuse space of temporaries, and None for all of `streamed_bytes`.
    `moved_back`: a trip that would cross an edge starts earlier instead; otherwise its tile is filled with the neutral
    value before it is loaded. `first_apart`: the first tile of the inner loops has its own buffer, so that its load and
    the next one need not wait. `in_place`: a trip's results are computed in the buffer of its loads, which stays
    occupied until they are stored.
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
    dot: Dot | None = None

    @property
    def tiles(self) -> int:
        return math.prod(axis.programs for axis in self.axes)

    @property
    def programs(self) -> int:
        return min(self.tiles, self.dot.programs) if self.dot and self.dot.programs else self.tiles

    @property
    def trips(self) -> int:
        return math.prod(axis.trips for axis in self.axes)


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """A kernel that can be tuned.

    - `function`: the `triton.jit` function, or its name as `"package.module:function"`; a tuple of them if a config
      launches several, or one of several.
    - `buffers(problem)`, `scalars(problem)`: the run-time arguments by name. Together with the `constexpr` parameters
      they are all of the function's arguments, with `constants(problem)`: `constexpr` arguments that the problem
      fixes. They are neither tuned nor part of a config. None stands for a pointer that the problem does not need.
    - `flags`: properties of a problem beside its sizes, each with its values.
    - `fill(tensors, problem, generator)`: write the inputs whose values matter (routing, lengths, targets), in place,
      after all inputs were drawn; `tensors` holds them by name. `generator` is a torch generator of their device. It is
      called for every draw of a verification, and must leave alone what any values will do for.
    - `grid(config, problem)`: programs along each grid axis, for a kernel of one function. A kernel of several has
      `launches(config, problem)` instead: its launches, in order. A config's time is that of all its launches.
    - `scratch(config, problem)`: buffers between the launches (partial results), written before they are read.
    - `tiling(config, problem)`: the tiling of the launch that does most of the work, for the prior; `tiling.programs`
      equals the product of its grid.
    - `reference(inputs)`: the expected outputs by argument name, computed with torch operations that keep the dtype of
      their inputs. It is called on float64 tensors to verify a config, and on the problem's dtype as the eager
      baseline. It may take the problem as a second argument, for its flags. Without one, a config is verified
      against the default config instead, whose inputs are in float32 if the kernel takes them.
    - `flops(problem)`: floating-point operations that the problem needs, for the roofline.
    - `matrix_dtype(problem)`: the dtype in which matrix units multiply, for a kernel that does its operations there.
      The roofline then has their peak rate.
    - `default(problem, target)`: the config to launch without tuning. It may be empty if the space is given by
      `configs`.
    - `metrics`: functions of (problem, time in us) by name, such as "TFLOP/s", or of (problem, time in us, energy in
      uJ), which are known where the device measures energy. They are stored with each trial and shown with it.
    - `objective`: the metric by which configs are ranked instead of their time, the smallest first: `"energy_uj"`, or
      one of `metrics` that takes the energy. It becomes a flag of every problem: `objective=energy_uj`.
    - `any_value`: inputs that may hold any float, although their buffers have a `draw`. Only the first draw of a
      verification uses it then; the others look for mistakes with values of all kinds.
    - `imported`: names that the function uses and its file does not define, since the program that generates the file
      sets them, each with its place: `{"erf": "package.module:erf"}`, or `{"tl": "triton.language"}`.
    - `inferred`: the spec follows from launches of its function, so the function alone identifies its results.
    - `configs(problem, target)`: the valid configs, if they are listed one by one (a recorded space) instead of being
      the combinations that satisfy `constraints`.
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
    reference: Callable[..., Tensors] | None = None
    flops: Callable[[Problem], int]
    default: Callable[[Problem, Target], Config]
    grid: Callable[[Config, Problem], tuple[int, ...]] | None = None
    launches: Callable[[Config, Problem], Sequence[Launch]] | None = None
    scratch: Callable[[Config, Problem], Mapping[str, Buffer]] = lambda config, problem: {}
    constraints: tuple[Constraint, ...] = ()
    configs: Callable[[Problem, Target], Sequence[Config]] | None = None
    any_value: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    constants: Callable[[Problem], Mapping[str, Value | None]] = lambda problem: {}
    fill: Callable[[Tensors, Problem, Any], None] | None = None
    matrix_dtype: Callable[[Problem], str] | None = None
    metrics: Mapping[str, Callable[..., float]] = field(default_factory=dict, hash=False)
    objective: str = ""
    imported: Mapping[str, str] = field(default_factory=dict, hash=False)
    inferred: bool = False
    origin: str = ""
    """The name by which another process loads this spec: registered, or `path/to/file.py:SPEC`; set on loading."""

    def __post_init__(self) -> None:
        """Raise `BadSpec` if a field has the wrong type; the results of the functions are checked at each call."""
        if (self.grid is None) == (self.launches is None) or isinstance(self.function, tuple) != (self.grid is None):
            raise BadSpec(f"kernel {self.name} needs one function and a grid, or a tuple of functions and launches")
        for name, kind in _TUPLES.items():
            _require_tuple(f"{name} of kernel {self.name}", getattr(self, name), kind)
        if both := sorted({flag.name for flag in self.flags} & set(self.dims)):
            raise BadSpec(f"kernel {self.name} has {', '.join(both)} as a dimension and as a flag; rename one")
        names = {*self.dims, *(flag.name for flag in self.flags)}
        if taken := sorted(names & _QUERY):
            raise BadSpec(
                f"kernel {self.name} has {', '.join(taken)} as a dimension or flag, which a REST query needs; rename it"
            )
        if unknown := [dtype for dtype in self.dtypes if dtype not in ITEM_BYTES]:
            raise BadSpec(f"kernel {self.name} takes {', '.join(unknown)}; known dtypes: {', '.join(ITEM_BYTES)}")
        if not isinstance(self.metrics, Mapping):
            raise BadSpec(f"metrics of kernel {self.name} are {cut(self.metrics)}; expected a function for each name")
        metrics = {
            name: validated(f"metric {name!r} of kernel {self.name}", function, _figure)
            for name, function in self.metrics.items()
        }
        object.__setattr__(self, "metrics", metrics)
        self._check_objective()
        for name, (arguments, check) in _RESULTS.items():
            function = getattr(self, name)
            if function is not None or name not in _OPTIONAL:
                more = {"passes_through": _may_be_the_devices} if name in ("reference", "fill") else {}
                object.__setattr__(
                    self, name, validated(f"{name}({arguments}) of kernel {self.name}", function, check, **more)
                )

    def _check_objective(self) -> None:
        known = [ENERGY, *(name for name, function in self.metrics.items() if _takes(function) > 2)]
        if self.objective and self.objective not in known:
            raise BadSpec(
                f"kernel {self.name} has the objective {cut(self.objective)}; expected {', '.join(known)}, or a metric "
                "of (problem, time_us, energy_uj): one of the time alone ranks as the time does"
            )
        if not WORD.fullmatch(self.objective or ENERGY):
            raise BadSpec(f"objective {cut(self.objective)} of kernel {self.name} is no word; a query needs one")

    def to_json(self) -> dict[str, Any]:
        """Return the kernel's entry in the listings of the command line and the REST service."""
        parameters = [parameter.name for parameter in self.parameters]
        listed = {"dims": list(self.dims), "dtypes": list(self.dtypes), "parameters": parameters}
        flags = {"flags": {flag.name: list(flag.values) for flag in self.flags}} if self.flags else {}
        ranked = {"objective": self.objective} if self.objective else {}
        return {"name": self.name, "summary": self.summary, **listed, **flags, **ranked}

    @property
    def has_reference(self) -> bool:
        """False if configs are verified against the default config alone."""
        return self.reference is not None

    def functions(self) -> tuple[Any, ...]:
        """Return every function that any config launches."""
        return self.function if isinstance(self.function, tuple) else (self.function,)

    def plan(self, config: Config, problem: Problem) -> tuple[Launch, ...]:
        """Return the config's launches, in order."""
        if self.launches is not None:
            return tuple(self.launches(config, problem))
        assert self.grid is not None, "__post_init__ requires one or the other"
        return (Launch(self.function, tuple(self.grid(config, problem))),)

    def reference_of(self, problem: Problem) -> Callable[[Tensors], Tensors]:
        """Return the reference as a function of the inputs alone. Raises `BadSpec` if the spec has none."""
        reference = self.reference
        if reference is None:
            raise BadSpec(f"kernel {self.name} has no reference; write reference= into its spec")
        if _takes(reference) < 2:
            return reference
        return lambda inputs: reference(inputs, problem)

    def bytes(self, problem: Problem) -> int:
        """Return the least bytes moved through global memory: each input read once, each output written once."""
        return sum(buffer.least_bytes for buffer in self.buffers(problem).values())

    @property
    def needs_energy(self) -> bool:
        """True if a device that can should measure the energy of a launch."""
        return self.objective == ENERGY or any(_takes(function) > 2 for function in self.metrics.values())

    def metrics_of(self, problem: Problem, time_us: float, energy_uj: float | None) -> dict[str, float]:
        """Return the energy, and the spec's own metrics, of a launch; without those that need an unknown energy."""
        known = {} if energy_uj is None else {ENERGY: energy_uj}
        for name, function in self.metrics.items():
            if _takes(function) < 3:
                known[name] = function(problem, time_us)
            elif energy_uj is not None:
                known[name] = function(problem, time_us, energy_uj)
        return known

    def options(self) -> frozenset[str]:
        """Return the names of the parameters that are compile options rather than arguments."""
        return frozenset(p.name for p in self.parameters if p.role == "option")


_OPTIONAL = ("grid", "launches", "configs", "fill", "matrix_dtype", "reference")
"""Functions that a spec may leave out."""

_QUERY = {"device", "dtype", "match", "toolchain", OBJECTIVE}
"""Names in the query of a look-up over REST, which gives dimensions and flags by name beside them, and the flag that
`KernelSpec.objective` makes."""


def _takes(function: Any) -> int:
    """Return the number of arguments that a function of a spec takes by position."""
    plain = function.function if isinstance(function, ValidatedCallback) else function
    return sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in inspect.signature(plain).parameters.values())


# Checks of fields and of returned values -------------------------------------------------------------------------

_TUPLES: dict[str, type] = {
    "dims": str,
    "dtypes": str,
    "parameters": Parameter,
    "constraints": Constraint,
    "any_value": str,
    "flags": Flag,
}


def _require_tuple(name: str, value: object, kind: type) -> None:
    if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
        one = "a string" if kind is str else f"a {kind.__name__}"
        raise BadSpec(f"{name} is {cut(value)}; expected a tuple, each item {one} (a tuple of one ends in a comma)")


def _values(values: object) -> str:
    if isinstance(values, Sequence) and not isinstance(values, str) and all(isinstance(v, Value) for v in values):
        return ""
    return f"{cut(values)}; expected a list of numbers, strings or truth values"


def _truth(result: object) -> str:
    """Only truths, Python's or numpy's: of a remainder that was to be compared with 0, every other number is true."""
    return "" if type(result).__name__ in ("bool", "bool_") else f"{cut(result)}; expected True or False"


def _buffers(buffers: object) -> str:
    if not isinstance(buffers, Mapping) or not all(isinstance(buffer, Buffer) for buffer in buffers.values()):
        return f"{cut(buffers)}; expected a Buffer for each name"
    return next(filter(None, (_buffer(name, buffer) for name, buffer in buffers.items())), "")


def _buffer(name: str, buffer: Buffer) -> str:
    if not isinstance(buffer.shape, tuple) or not all(isinstance(size, int) and size > 0 for size in buffer.shape):
        return f"{name} with the shape {cut(buffer.shape)}; expected a tuple of sizes from 1"
    if buffer.dtype not in ITEM_BYTES:
        return f"{name} with the dtype {cut(buffer.dtype)}; expected one of {', '.join(ITEM_BYTES)}"
    if buffer.role not in ("in", "out", "inout"):
        return f"{name} with the role {cut(buffer.role)}; expected in, out or inout"
    if buffer.strides is not None and not _are_apart(buffer.shape, buffer.strides):
        return f"{name} with the strides {cut(buffer.strides)}; expected a tuple, with which no two elements overlap"
    return ""


def _are_apart(shape: tuple[int, ...], strides: object) -> bool:
    """Return whether each axis steps over all that the axes of smaller strides reach."""
    if not isinstance(strides, tuple) or len(strides) != len(shape):
        return False
    if not all(isinstance(stride, int) and stride > 0 for stride in strides):
        return False
    reached = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride < reached:
            return False
        reached += (size - 1) * stride
    return True


def _constants(constants: object) -> str:
    fits = isinstance(constants, Mapping) and all(
        value is None or isinstance(value, Value) or _is_triton_dtype(value) for value in constants.values()
    )
    return "" if fits else f"{cut(constants)}; expected a number, a string, a truth value or None for each name"


def _is_triton_dtype(value: object) -> bool:
    return type(value).__name__ == "dtype" and type(value).__module__.startswith("triton.")


def _nothing(result: object) -> str:
    return "" if result is None else f"{cut(result)}; expected nothing: it writes to the tensors in place"


def _dtype(dtype: object) -> str:
    return "" if dtype in ITEM_BYTES else f"{cut(dtype)}; expected one of {', '.join(ITEM_BYTES)}"


def _numbers(scalars: object) -> str:
    fits = isinstance(scalars, Mapping) and all(isinstance(value, int | float) for value in scalars.values())
    return "" if fits else f"{cut(scalars)}; expected a number for each name"


def _figure(result: object) -> str:
    fits = isinstance(result, int | float) and math.isfinite(result)
    return "" if fits else f"{cut(result)}; expected a finite number"


def _grid(grid: object) -> str:
    fits = isinstance(grid, Sequence) and 1 <= len(grid) <= 3 and all(isinstance(n, int) and n > 0 for n in grid)
    return "" if fits else f"the grid {cut(grid)}; expected a tuple of one to three whole numbers from 1"


def _launches(launches: object) -> str:
    if not isinstance(launches, Sequence) or not all(isinstance(launch, Launch) for launch in launches):
        return f"{cut(launches)}; expected a list of Launch"
    return next(filter(None, (_grid(launch.grid) or _blocks(launch.blocks) for launch in launches)), "")


def _blocks(blocks: object) -> str:
    fits = isinstance(blocks, Mapping) and all(
        isinstance(block, tuple) and all(isinstance(size, int) and size > 0 for size in block)
        for block in blocks.values()
    )
    return "" if fits else f"the blocks {cut(blocks)}; expected a tuple of sizes from 1 for each buffer's name"


def _outputs(outputs: object) -> str:
    fits = isinstance(outputs, Mapping) and all(hasattr(tensor, "requires_grad") for tensor in outputs.values())
    return "" if fits else f"{cut(outputs)}; expected a torch tensor for each output's name"


def _may_be_the_devices(error: Exception, given: tuple[Any, ...]) -> bool:
    """Return whether the error may be the device's: memory that ran out, or an earlier kernel's fault, surfaces as a
    RuntimeError of the next torch call."""
    return isinstance(error, RuntimeError) and any(tensor.device.type != "cpu" for tensor in given[0].values())


def _only(kind: Any, expected: str) -> Callable[[object], str]:
    return lambda result: "" if isinstance(result, kind) else f"{cut(result)}; expected {expected}"


_RESULTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "buffers": ("problem", _buffers),
    "scalars": ("problem", _numbers),
    "constants": ("problem", _constants),
    "fill": ("tensors, problem, generator", _nothing),
    "matrix_dtype": ("problem", _dtype),
    "grid": ("config, problem", _grid),
    "launches": ("config, problem", _launches),
    "scratch": ("config, problem", _buffers),
    "tiling": ("config, problem", _only(Tiling, "a Tiling")),
    "reference": ("inputs", _outputs),
    "flops": ("problem", _only(int | float, "a number")),
    "default": ("problem, target", _only(Mapping, "a value for each parameter")),
    "configs": ("problem, target", _only(Sequence, "a list of configs")),
}
"""The arguments of each function of a spec, and the check of its result: an empty text if it is valid."""
