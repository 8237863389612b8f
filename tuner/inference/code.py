"""A kernel's work as its compiled code shows it: tiles loaded and stored, loops and their trips, arithmetic.

Triton's own IR is read as text, after inlining: the same for every backend and release. Integers that follow from the
arguments of a launch are worked out for one of its programs.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewise.kernels.spec import ceil_div

__all__ = ["Access", "Work", "read_code"]

_ITEM_BYTES = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "f8E4M3FN": 1,
    "f8E5M2": 1,
    "i64": 8,
    "i32": 4,
    "i16": 2,
    "i8": 1,
    "i1": 1,
}
_FLOATS = ("f64", "f32", "f16", "bf16")

_INTEGER: dict[str, Callable[[int, int], int]] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "divsi": lambda a, b: int(a / b) if b else 0,
    "divui": lambda a, b: a // b if b else 0,
    "ceildivsi": lambda a, b: ceil_div(a, b) if b else 0,
    "remsi": lambda a, b: int(math.fmod(a, b)) if b else 0,
    "remui": lambda a, b: a % b if b else 0,
    "minsi": min,
    "minui": min,
    "maxsi": max,
    "maxui": max,
}

_COPIED = {"arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"}

_UNCOUNTED = {"constant", "cmpf", "select", "extf", "truncf", "sitofp", "uitofp", "fptosi", "bitcast"}
"""Operations of `arith` that are no arithmetic on floats."""


@dataclass(frozen=True, slots=True)
class Access:
    """A load, a store or an atomic update of a tile of `shape` in an argument's memory, within these loops. It is
    `masked` if some of the tile may be left out."""

    argument: str
    kind: str
    shape: tuple[int, ...]
    item_bytes: int
    loops: tuple[int, ...]
    masked: bool = False

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.item_bytes


@dataclass
class Work:
    """The work of one program. `trips` holds those of each loop, 1 where they are unknown.

    `operations` are on floats, in all trips. `reductions` holds the loops of each reduction of a tile, `dots` the m, n
    and k of each matrix product with its loops.
    """

    accesses: list[Access] = field(default_factory=list)
    trips: dict[int, int] = field(default_factory=dict)
    operations: int = 0
    reductions: list[tuple[int, ...]] = field(default_factory=list)
    dots: list[tuple[tuple[int, int, int], tuple[int, ...]]] = field(default_factory=list)

    def trips_of(self, loops: Sequence[int]) -> int:
        return math.prod(self.trips[loop] for loop in loops)

    def written(self, argument: str) -> bool:
        return any(a.argument == argument and a.kind != "load" for a in self.accesses)

    def read(self, argument: str) -> bool:
        return any(a.argument == argument and a.kind != "store" for a in self.accesses)


def read_code(text: str, names: Sequence[str], integers: Mapping[str, int], grid: Sequence[int]) -> Work | None:
    """Read the text of a kernel's Triton IR.

    `names` are the arguments of its function in order, `integers` the values of those that are integers, and `grid` the
    programs along each axis. The work is that of the first program, or of the one in the middle if the first leaves out
    a loop, as in causal attention. Returns None if the function takes another number of arguments.
    """
    first = _read(text, names, _Reader(integers, grid, [0] * len(grid)))
    if first is None or 0 not in first.trips.values():
        return first
    return _read(text, names, _Reader(integers, grid, [size // 2 for size in grid]))


def _read(text: str, names: Sequence[str], reader: _Reader) -> Work | None:
    lines = (line.strip() for line in text.splitlines())
    return reader.work if all(reader.line(line, names) for line in lines) else None


_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(!tt\.ptr<)?(\w+)")


class _Reader:
    def __init__(self, integers: Mapping[str, int], grid: Sequence[int], program: Sequence[int]) -> None:
        self.work = Work()
        self._given, self._grid, self._program = integers, (*grid, 1, 1, 1), (*program, 0, 0, 0)
        self._known: dict[str, int] = {}
        self._roots: dict[str, frozenset[str]] = {}
        self._types: dict[str, str] = {}
        self._regions: list[int | None] = []
        self._inside = False

    def line(self, text: str, names: Sequence[str]) -> bool:
        """Read one line; return False if the function's arguments are not those expected."""
        text = re.sub(r"\s*loc\([^()]*(?:\([^()]*\))?[^()]*\)", "", text)
        if text.startswith("}"):
            if self._regions:
                self._regions.pop()
            if text.endswith("{"):
                self._regions.append(None)
            return True
        if text.startswith("tt.func"):
            self._inside = " private " not in text
            self._regions.append(None)
            return self._arguments(text, names) if self._inside else True
        if (self._inside and "=" in text) or text.startswith(("tt.", "scf.", '"tt.')):
            self._operation(text)
        elif text.endswith("{"):
            self._regions.append(None)
        return True

    @property
    def _loops(self) -> tuple[int, ...]:
        return tuple(loop for loop in self._regions if loop is not None)

    def _arguments(self, text: str, names: Sequence[str]) -> bool:
        found = re.findall(r"(%[\w.$-]+): (!tt\.ptr<\w+>|[\w<>!.]+)", text)
        if len(found) != len(names):
            return False
        for (value, kind), name in zip(found, names, strict=True):
            self._types[value] = kind
            if "ptr" in kind:
                self._roots[value] = frozenset((name,))
            elif name in self._given:
                self._known[value] = int(self._given[name])
        return True

    def _operation(self, text: str) -> None:
        assigned = re.match(r"(%[\w:.$-]+) = (.*)", text)
        results, rest = assigned.groups() if assigned else ("", text)
        found = re.match(r'"?([\w.]+)"?', rest)
        if found is None:
            return
        name, values = found.group(1), _VALUE.findall(rest)
        result, _, count = results.partition(":")
        if name == "scf.for":
            self._loop(result, int(count or 1), rest)
            return
        if result:
            self._types[result] = _result_type(name, rest, self._types.get(values[0], "") if values else "")
            self._integer(name, result, values, rest)
            if "tt.ptr" in self._types[result] or name in ("tt.make_tensor_ptr", "tt.advance"):
                self._roots[result] = frozenset().union(*(self._roots.get(v, frozenset()) for v in values))
        checked = "boundaryCheck = array<i32: " in rest
        self._count(name, values, self._types.get(result, ""), checked=checked)
        if rest.endswith("{"):
            self._regions.append(None)

    def _loop(self, result: str, count: int, text: str) -> None:
        head = re.match(r"scf\.for (\S+) = (\S+) to (\S+) step (\S+)", text)
        loop = len(self.work.trips)
        self._regions.append(loop)
        self.work.trips[loop] = 1
        if head is None:
            return
        index, *bounds = head.groups()
        first, last, step = (self._known.get(bound) for bound in bounds)
        if first is not None and last is not None and step:
            self.work.trips[loop] = max(0, ceil_div(last - first, step))
        if first is not None:
            self._known[index] = first
        for number, (inner, outer) in enumerate(
            re.findall(r"(%[\w.$-]+) = (%[\w.$#-]+)", text.partition("iter_args")[2])
        ):
            for value in (inner, result if count == 1 else f"{result}#{number}"):
                self._types[value] = self._types.get(outer, "")
                if outer in self._roots:
                    self._roots[value] = self._roots[outer]

    def _integer(self, name: str, result: str, values: Sequence[str], text: str) -> None:
        known = [self._known.get(value) for value in values]
        if name == "arith.constant" and (number := re.match(r"arith\.constant (-?\d+) : (?:i\d+|index)", text)):
            self._known[result] = int(number.group(1))
        elif name == "tt.get_program_id":
            self._known[result] = self._program[_axis(text)]
        elif name == "tt.get_num_programs":
            self._known[result] = self._grid[_axis(text)]
        elif name in _COPIED and known and known[0] is not None:
            self._known[result] = known[0]
        elif (function := _INTEGER.get(name.removeprefix("arith."))) is not None and len(known) == 2:
            left, right = known
            if left is not None and right is not None:
                self._known[result] = function(left, right)

    def _count(self, name: str, values: Sequence[str], kind: str, *, checked: bool) -> None:
        loops, work = self._loops, self.work
        if name in ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas") and values:
            action = {"load": "load", "store": "store"}.get(name.removeprefix("tt."), "atomic")
            shape, item = _shape(self._types.get(values[0], ""))
            masked = checked or len(values) > {"load": 1, "store": 2}.get(action, 3)
            for root in sorted(self._roots.get(values[0], ())):
                work.accesses.append(Access(root, action, shape, _ITEM_BYTES.get(item, 4), loops, masked))
        elif name == "tt.reduce" and values:
            shape, _ = _shape(self._types.get(values[0], ""))
            work.reductions.append(loops)
            work.operations += math.prod(shape) * work.trips_of(loops)
        elif name == "tt.dot" and len(values) >= 2:
            (m, k), (_, n) = _shape(self._types.get(values[0], ""))[0], _shape(self._types.get(values[1], ""))[0]
            work.dots.append(((m, n, k), loops))
            work.operations += 2 * m * n * k * work.trips_of(loops)
        elif name.startswith("math.") or (name.startswith("arith.") and name.partition(".")[2] not in _UNCOUNTED):
            shape, item = _shape(kind)
            if shape and item in _FLOATS:
                work.operations += math.prod(shape) * work.trips_of(loops)


def _axis(text: str) -> int:
    found = re.search(r"\b([xyz])\b", text)
    return "xyz".index(found.group(1)) if found else 0


def _result_type(name: str, text: str, operand: str) -> str:
    """Return the text of the type of an operation's result; that of a load is its pointers' target."""
    kind = re.split(r" -> | to (?=tensor|[!fi])", text.rpartition(" : ")[2])[-1]
    if name == "tt.load":
        return re.sub(r"!tt\.ptr<(.*?)>", r"\1", kind, count=1)
    return kind or operand


def _shape(kind: str) -> tuple[tuple[int, ...], str]:
    """Return the shape and element type of a tensor type, of the tensor that a block pointer points to, or of a scalar
    pointer's target."""
    if found := _TENSOR.search(kind):
        return tuple(int(size) for size in found.group(1).split("x") if size), found.group(3)
    scalar = re.search(r"ptr<(\w+)", kind)
    return (), scalar.group(1) if scalar else kind
