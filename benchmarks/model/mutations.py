"""`tilewise bench mutations`: the share of faults in compiled programs that is detected.

Compiled programs are changed in one random place: a flag or barrier dropped, an address shifted, a size off by one, two
operands swapped. A change counts if it changes the program's outputs (bit by bit, executed without checks) or the order
of accesses. The order is found by listing, for every operation, all that must finish before it starts, which is not the
method of the checks themselves. A change that counts must be reported.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.clock.core import PIPES, S
from tilewise.tuner.devices.ascend_model.executor.hazards import Order
from tilewise.tuner.devices.ascend_model.executor.memory import Array, View, place
from tilewise.tuner.devices.ascend_model.executor.mixed import executor_of
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config, execute, judge, stored
from tilewise.tuner.devices.ascend_model.ir.hivm import DYNAMIC, Block, Function, MemRef, Op, kept_dimensions
from tilewise.tuner.measure.verify import Arguments
from tilewise.tuner.space.search_space import enumerate_space

__all__ = ["KINDS", "Case", "Finding", "compile_case", "edited", "mutate", "study", "try_change"]

KINDS = ("flag dropped", "address shifted", "size off by one", "operands swapped")

_FLAGS = ("hivm.hir.set_flag", "hivm.hir.wait_flag", "hivm.hir.pipe_barrier")

DIMS: Mapping[tuple[str, ...], Mapping[str, int]] = {
    ("N",): {"N": 5003},
    ("M", "N"): {"M": 43, "N": 301},
    ("N", "C", "HW"): {"N": 5, "C": 7, "HW": 131},
    ("M", "H", "HALF"): {"M": 11, "H": 5, "HALF": 33},
    ("M", "E", "TOPK"): {"M": 43, "E": 19, "TOPK": 3},
}
"""Small dims with tails, by a kernel's dimension names."""

Unordered = frozenset[tuple[int, int, int]]
"""Triples of a launch and two operation numbers: operations that use the same bytes and may overlap."""


@dataclass(frozen=True, slots=True)
class Case:
    """A compiled config, with the outputs of its launches and the unordered accesses that it has unchanged."""

    spec: KernelSpec
    problem: Problem
    config: Config
    functions: tuple[Function, ...]
    arguments: Arguments
    left: Mapping[str, Array]
    unordered: Unordered


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one change: whether it changed results or order, and the report (empty: none)."""

    kind: str
    kernel: str
    change: str
    result_changed: bool
    order_changed: bool
    report: str

    @property
    def counts(self) -> bool:
        return self.result_changed or self.order_changed


def study(count: int, seed: int, target: Target, folder: Path) -> Iterator[Finding]:
    """Try `count` random changes, to programs of all kernels in turn."""
    generator = random.Random(seed)
    names = registry.vector_names()
    generator.shuffle(names)
    made = 0
    for name in itertools.cycle(names):
        case = _random_case(name, generator, target, folder)
        for kind in KINDS:
            if (change := mutate(case, kind, generator)) is not None:
                yield try_change(case, kind, *change, on_chip_bytes=target.on_chip_bytes)
                made += 1
            if made == count:
                return


def _random_case(name: str, generator: random.Random, target: Target, folder: Path) -> Case:
    """Return a random config of the kernel that compiles and is correct unchanged."""
    spec = registry.load(name)
    while True:
        problem = Problem(name, dict(DIMS[spec.dims]), generator.choice(spec.dtypes))
        config = generator.choice(enumerate_space(spec, problem, target).configs)
        try:
            return compile_case(spec, problem, config, target, folder)
        except ValueError:  # it does not fit on chip, or is faulty unchanged
            continue


def compile_case(spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path) -> Case:
    """Compile and run a config; raise `ValueError` if it does not compile or is not correct."""
    functions = compile_config(spec, problem, config, target, folder)
    arguments = Arguments(spec, problem)
    verdict = judge(spec, problem, config, functions, arguments, target.on_chip_bytes)
    if not verdict.agreed:
        raise ValueError(verdict.reason)
    case = Case(spec, problem, config, functions, arguments, {}, frozenset())
    left, unordered = _run_unchecked(case, functions, target.on_chip_bytes)
    return replace(case, left=left, unordered=unordered)


def try_change(case: Case, kind: str, change: str, functions: tuple[Function, ...], *, on_chip_bytes: int) -> Finding:
    """Execute the changed program without checks, to see what the change does, and with them."""
    try:
        left, unordered = _run_unchecked(case, functions, on_chip_bytes)
        result_changed = any(left[name].tobytes() != case.left[name].tobytes() for name in left)
        order_changed = bool(unordered - case.unordered)
    except (ValueError, IndexError, OverflowError, MemoryError):  # it does not run at all
        result_changed, order_changed = True, False
    verdict = judge(case.spec, case.problem, case.config, functions, case.arguments, on_chip_bytes)
    report = verdict.reason
    if verdict.agreed:
        report = "; ".join(
            sorted(_unbarriered(case, functions, on_chip_bytes) - _unbarriered(case, case.functions, on_chip_bytes))
        )
    return Finding(kind, case.spec.name, change, result_changed, order_changed, report)


def _unbarriered(case: Case, functions: tuple[Function, ...], on_chip_bytes: int) -> set[str]:
    case.arguments.poison()
    tensors = case.arguments.bind(case.config)
    return execute(case.spec, case.problem, case.config, functions, tensors, on_chip_bytes).unbarriered


def _run_unchecked(
    case: Case, functions: tuple[Function, ...], on_chip_bytes: int
) -> tuple[dict[str, Array], Unordered]:
    """Execute all launches without checks; return the outputs and the unordered accesses."""
    tensors = case.arguments.bind(case.config)
    case.arguments.restore()
    case.arguments.poison()
    unordered: set[tuple[int, int, int]] = set()
    for launch, (step, function) in enumerate(zip(case.spec.plan(case.config, case.problem), functions, strict=True)):
        sizes, scalars = toolchain.arguments(case.spec, case.problem, case.config, step)
        pairs: set[tuple[int, int]] = set()
        executor = executor_of(function, on_chip_bytes, order=lambda size, pairs=pairs: _Listing(pairs))  # type: ignore[misc]
        executor.run({name: stored(tensors[name]) for name in sizes}, scalars, step.grid)
        unordered |= {(launch, *pair) for pair in pairs}
    return {name: stored(tensor).copy() for name, tensor in case.arguments.outputs.items()}, frozenset(unordered)


# Order by listing ------------------------------------------------------------------------------------------------


class _Listing(Order):
    """The order of operations by brute force, byte by byte.

    For every operation it lists all that are over before it starts, as the bits of an integer. A pair that uses the
    same bytes and is not in that set goes to `pairs`.
    """

    def __init__(self, pairs: set[tuple[int, int]]) -> None:
        super().__init__(0)
        self._pairs = pairs
        self._over = [0] * len(PIPES)  # before the next operation of each pipe
        self._mine = [0] * len(PIPES)  # all operations of each pipe
        self._uses: list[tuple[Op, int, int]] = []
        self._set: dict[tuple[int, int, int], list[int]] = {}

    def copy(self) -> _Listing:
        twin = _Listing(self._pairs)
        twin._over, twin._mine, twin._uses = [*self._over], [*self._mine], [*self._uses]
        twin._set = {key: [*sets] for key, sets in self._set.items()}
        return twin

    def issue(self, pipe: int, op: Op, views: Sequence[View] = ()) -> None:
        self._mine[pipe] |= 1 << len(self._uses)
        if pipe == S:
            self._over[S] |= 1 << len(self._uses)
        self._uses.append((op, 0, 0))

    def use(self, pipe: int, op: Op, reads: Sequence[View], writes: Sequence[View]) -> None:
        inward = _union(_bytes_of(view) for view in reads)
        outward = _union(_bytes_of(view) for view in writes)
        running = ((1 << len(self._uses)) - 1) & ~self._over[pipe]
        while running:
            index = running.bit_length() - 1
            running ^= 1 << index
            other, read, wrote = self._uses[index]
            read &= 0 if self._mine[S] >> index & 1 else -1  # the scalar unit has read before it issues the next
            if wrote & (inward | outward) or read & outward:
                self._pairs.add((other.number, op.number))
        self.issue(pipe, op)
        self._uses[-1] = (op, inward, outward)

    def barrier(self, pipe: int | None) -> None:
        for each in range(len(PIPES)) if pipe is None else [pipe]:
            self._over[each] |= _union(self._mine) if pipe is None else self._mine[each]

    def set_flag(self, source: int, target: int, event: int, op: Op) -> None:
        self._set.setdefault((source, target, event), []).append(self._over[source] | self._mine[source])

    def wait_flag(self, source: int, target: int, event: int, op: Op) -> None:
        sets = self._set.get((source, target, event))
        if not sets:
            self._pairs.add((-1, op.number))  # it waits forever
            return
        self._over[target] |= sets.pop(0)
        if target == S:
            held_back = self._over[S] & ~self._mine[S]
            self._over = [over | held_back for over in self._over]

    def finish(self) -> None:
        """Ignore flags that are set and never waited for: they change nothing in this program."""


def _union(sets: Iterator[int] | Sequence[int]) -> int:
    union = 0
    for one in sets:
        union |= one
    return union


def _bytes_of(view: View) -> int:
    """Return the bytes of a view as the bits of an integer."""
    offsets = np.array([view.address * 8 + int(view.offset) * view.item_bits])
    for size, stride in zip(view.sizes, view.strides, strict=True):
        offsets = (offsets[:, None] + np.arange(size) * stride * view.item_bits).ravel()
    held = np.zeros(math.ceil((int(offsets.max()) + view.item_bits) / 8), np.uint8)
    for byte in range(max(1, view.item_bits // 8)):
        held[offsets // 8 + byte] = 1
    return int.from_bytes(np.packbits(held, bitorder="little").tobytes(), "little")


# Changes ---------------------------------------------------------------------------------------------------------


def mutate(case: Case, kind: str, generator: random.Random) -> tuple[str, tuple[Function, ...]] | None:
    """Make one random change of that kind; return its description and the functions, or None if no place allows it."""
    places = [
        (launch, op)
        for launch, function in enumerate(case.functions)
        for op in function.body.walk()
        if _CHANGES[kind][0](op, function)
    ]
    if not places:
        return None
    launch, op = generator.choice(places)
    function = case.functions[launch]
    words, changed = _CHANGES[kind][1](op, function, generator)
    functions = (*case.functions[:launch], changed, *case.functions[launch + 1 :])
    return f"{place(op)}: {words}", functions


def edited(function: Function, target: Op, replacement: Sequence[Op], values: int = 0) -> Function:
    """Return the function, or its half, with `target` replaced; the replacement uses `values` more value numbers."""

    def block(old: Block) -> Block:
        operations: list[Op] = []
        for op in old.operations:
            if op is target:
                operations += replacement
            else:
                operations.append(replace(op, regions=tuple(block(region) for region in op.regions)))
        return Block(old.arguments, tuple(operations))

    vector = function.vector and replace(function.vector, body=block(function.vector.body))
    return replace(function, body=block(function.body), values=function.values + values, vector=vector)


def _drop(op: Op, function: Function, generator: random.Random) -> tuple[str, Function]:
    pipes = [op.attributes[key] for key in ("pipe", "set_pipe", "wait_pipe") if key in op.attributes]
    return f"dropped ({', '.join(pipes)})", edited(function, op, [])


def _shift(op: Op, function: Function, generator: random.Random) -> tuple[str, Function]:
    """Shift one of a buffer's addresses by some blocks, or a global buffer's window by some elements."""
    group = 0 if op.name == "hivm.hir.pointer_cast" else 1
    first = sum(op.attributes["operandSegmentSizes"][:group])
    at = generator.randrange(first, first + op.attributes["operandSegmentSizes"][group])
    unit = 32 if group == 0 else 1
    by = generator.choice([-8, -2, -1, 1, 2, 8]) * unit
    number, operand = function.values, op.operands[at]
    if group == 0:
        (known,) = (o.attributes["value"] for o in function.body.walk() if o.results == (operand,))
        added = [_constant(number, known + by, "i64", op)]
    else:
        sum_of = Op("arith.addi", (operand, number + 1), (number,), {}, ("index", "index"), ("index",), (), op.number)
        added = [_constant(number + 1, by, "index", op), sum_of]
    operands = (*op.operands[:at], number, *op.operands[at + 1 :])
    return f"shifted by {by}", edited(function, op, [*added, replace(op, operands=operands)], 2)


def _constant(number: int, value: int, kind: str, beside: Op) -> Op:
    return Op("arith.constant", (), (number,), {"value": value}, (), (kind,), (), beside.number)


def _resize(op: Op, function: Function, generator: random.Random) -> tuple[str, Function]:
    by = generator.choice([-1, 1])
    if op.name == "arith.constant":
        value = op.attributes["value"] + by
        return f"{value} instead of {value - by}", edited(function, op, [_with(op, "value", value)])
    at = generator.choice(_extents(op))
    (kind,) = op.result_types
    assert isinstance(kind, MemRef)
    sizes, shape = list(op.attributes["static_sizes"]), list(kind.shape)
    place_in_result = kept_dimensions(sizes, shape).index(at)
    sizes[at] += by
    shape[place_in_result] += by
    resized = replace(_with(op, "static_sizes", tuple(sizes)), result_types=(replace(kind, shape=tuple(shape)),))
    return f"extent {sizes[at]} instead of {sizes[at] - by}", edited(function, op, [resized])


def _extents(op: Op) -> list[int]:
    """Return the axes of a view that have known extents and are in the result."""
    (kind,) = op.result_types
    assert isinstance(kind, MemRef)
    sizes = op.attributes["static_sizes"]
    return [axis for axis in kept_dimensions(sizes, kind.shape) if sizes[axis] != DYNAMIC]


def _with(op: Op, name: str, value: Any) -> Op:
    return replace(op, attributes={**op.attributes, name: value})


def _swap(op: Op, function: Function, generator: random.Random) -> tuple[str, Function]:
    first, second = generator.choice(_alike(op))
    operands = list(op.operands)
    operands[first], operands[second] = operands[second], operands[first]
    return f"operands {first} and {second} swapped", edited(function, op, [replace(op, operands=tuple(operands))])


def _alike(op: Op) -> list[tuple[int, int]]:
    """Return the pairs of inputs that can be swapped: different values of the same type."""
    inputs = len(op.operands)
    if op.name.startswith("hivm.hir.v") and "operandSegmentSizes" in op.attributes:
        inputs = op.attributes["operandSegmentSizes"][0]
    return [
        (a, b)
        for a in range(inputs)
        for b in range(a + 1, inputs)
        if op.operands[a] != op.operands[b] and op.types[a] == op.types[b]
    ]


def _has_address(op: Op, function: Function) -> bool:
    return op.name == "hivm.hir.pointer_cast" or (
        op.name == "memref.reinterpret_cast" and op.attributes["operandSegmentSizes"][1] > 0
    )


def _has_size(op: Op, function: Function) -> bool:
    if op.name in ("memref.subview", "memref.reinterpret_cast"):
        return bool(_extents(op))
    whole = op.name == "arith.constant" and isinstance(op.attributes["value"], int) and op.result_types[0] != "i1"
    return whole and op.results[0] not in _addresses(function)


def _addresses(function: Function) -> set[int]:
    return {n for op in function.body.walk() if op.name == "hivm.hir.pointer_cast" for n in op.operands}


_SWAPPED = ("hivm.hir.v", "arith.", "math.")

_CHANGES: Mapping[
    str,
    tuple[Callable[[Op, Function], bool], Callable[[Op, Function, random.Random], tuple[str, Function]]],
] = {
    "flag dropped": (lambda op, function: op.name in _FLAGS, _drop),
    "address shifted": (_has_address, _shift),
    "size off by one": (_has_size, _resize),
    "operands swapped": (lambda op, function: op.name.startswith(_SWAPPED) and bool(_alike(op)), _swap),
}
