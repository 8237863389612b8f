"""Loops over the elements of a tile, executed for all elements at once.

A register becomes an array with an axis for the programs and one for each loop, a row that each trip loads one with
another axis for its elements. That gives what one trip after the
other gives if no trip reads what another one writes: memory that is read and written has to be the same element in
each trip, read first. Addresses tell, once they are known. Where they do not show it, the loop is executed as it
stands. What does the same in every trip is executed once, before the others: of memory that no trip writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tilewise.tuner.devices.ascend_model.clock.core import MTE2, S
from tilewise.tuner.devices.ascend_model.executor.global_memory import GlobalMemory, require_transfer
from tilewise.tuner.devices.ascend_model.executor.groups import Group, Step, run_steps
from tilewise.tuner.devices.ascend_model.executor.memory import BLOCK_BYTES, View, collapsed
from tilewise.tuner.devices.ascend_model.ir.element_loops import ElementLoop
from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, Op, index_plan, kept_dimensions
from tilewise.tuner.devices.ascend_model.ir.scalars import wrapping_function

__all__ = ["OneByOne", "Registers", "all_at_once", "compute_step", "meet"]


class _Launch(Protocol):
    """The executor, as far as a loop needs it."""

    memory: GlobalMemory

    def step(self, op: Op) -> Step: ...


class OneByOne(Exception):
    """Trips may depend on one another, or use memory in a way that arrays do not express."""


def all_at_once(launch: _Launch, found: ElementLoop, one_by_one: Step) -> Step:
    """Compile a nest of loops; `one_by_one` executes it as it stands."""
    compiled = [[(op, compute_step(op)) for op in level.operations] for level in found.levels]
    once = [launch.step(op) for op in found.repeated.operations]

    def loop(group: Group) -> list[Group]:
        return [end for part in group.split(found.bounds) for end in whole(part)]

    def whole(group: Group) -> list[Group]:
        trips = [range(*(int(group.values[n]) for n in level.op.operands)) for level in found.levels]
        if not all(trips):
            return [group]
        return [end for part in run_steps(once, [group]) for end in elements(part, trips)]

    def elements(group: Group, trips: Sequence[range]) -> list[Group]:
        registers = Registers(group, launch.memory, trips, [group.values[number] for number in found.stored])
        try:
            for level, operations in zip(found.levels, compiled, strict=True):
                registers.count(level.index)
                for op, compute in operations:
                    compute(registers, op)
        except OneByOne:
            return one_by_one(group) or [group]
        registers.commit()
        return [group]

    return loop


@dataclass(frozen=True, slots=True)
class _Access:
    """An access to on-chip memory by all trips, or to global memory (no view). A write has values."""

    op: Op
    view: View | None = None
    values: Any = None
    pipe: int = S

    @property
    def writes(self) -> bool:
        return self.values is not None


class Registers:
    """The values of a nest's operations: arrays of (programs, trips of each loop), of extent 1 where all are equal.

    Nothing outside is changed before `commit`.
    """

    def __init__(self, group: Group, memory: GlobalMemory, trips: Sequence[range], stored: Sequence[View] = ()) -> None:
        self.group, self.memory, self.trips = group, memory, trips
        self._stored = stored
        """Tiles that a repeated operation stores, which no trip may write."""
        self._values: dict[int, Any] = {}
        self.gathered: set[int] = set()
        """The global buffers that are read, by argument index."""
        self._accesses: list[_Access] = []
        self._counted = 0

    def __getitem__(self, number: int) -> Any:
        if number in self._values:
            return self._values[number]
        value = self.group.values[number]
        if isinstance(value, View):
            return replace(value, offset=self._lifted(value.offset))
        return self._lifted(value)

    def __setitem__(self, number: int, value: Any) -> None:
        self._values[number] = value

    def _lifted(self, value: Any) -> Any:
        """Return a value from outside the nest with an axis for each loop."""
        return value.reshape(-1, *[1] * len(self.trips)) if isinstance(value, np.ndarray) else value

    def count(self, index: int) -> None:
        """Begin the next loop inside."""
        shape = [1] * (1 + len(self.trips))
        shape[1 + self._counted] = -1
        self._values[index] = np.array(self.trips[self._counted], np.int64).reshape(shape)
        self._counted += 1

    def element(self, number: int, indices: Sequence[int]) -> View:
        """Return a view of one element for each trip: its offset is a number or an array."""
        view: View = self[number]
        moves = [self[i] * stride for i, stride in zip(indices, view.strides, strict=True)]
        return replace(view, offset=view.offset + sum(moves), sizes=(), strides=())

    def read(self, op: Op, element: View) -> Any:
        if not element.on_chip:
            at = np.broadcast_to(element.offset, (len(self.group.programs), *np.shape(element.offset)[1:]))
            if (found := self.memory.gather(op, element, at)) is None:
                raise OneByOne
            self._accesses.append(_Access(op))
            self.gathered.add(element.base)
            return found
        view = self._tile(element)
        if any(made.writes and meet(made.view, view) for made in self._accesses):
            raise OneByOne
        self._accesses.append(_Access(op, view))
        return self.group.chip.read(view, op).copy()

    def load_row(self, op: Op, outside: View, inside: View) -> None:
        """Load a row of whole blocks in each trip."""
        require_transfer(outside, inside, op)
        row_bytes = inside.elements() * inside.item_bits // 8
        if len(outside.sizes) != 1 or inside.strides != (1,) or not row_bytes or row_bytes % BLOCK_BYTES:
            raise OneByOne
        elements = np.asarray(outside.offset)[..., None] + np.arange(inside.elements()) * outside.strides[0]
        at = np.broadcast_to(elements, (len(self.group.programs), *map(len, self.trips), inside.elements()))
        if (found := self.memory.gather(op, replace(outside, sizes=(), strides=()), at)) is None:
            raise OneByOne
        self.write(op, inside, found, MTE2)

    def write(self, op: Op, element: View, value: Any, pipe: int = S) -> None:
        view = self._tile(element)
        if (*map(len, self.trips), *element.sizes) != view.sizes or not _is_injective(view):
            raise OneByOne
        if pipe != S and not _begins_blocks(view):
            raise OneByOne
        if any(meet(stored, view) for stored in self._stored):
            raise OneByOne
        for made in self._accesses:
            if made.view is not None and meet(made.view, view) and (made.writes or made.view != view):
                raise OneByOne
        self._accesses.append(_Access(op, view, value, pipe))

    def _tile(self, element: View) -> View:
        """Return the elements of all trips as one view, or their rows with an axis more."""
        at, rest = np.asarray(element.offset), (element.sizes, element.strides)
        if at.ndim == 0:
            ones, zeros = ((fill,) * len(self.trips) for fill in (1, 0))
            return replace(element, offset=int(at), sizes=ones + rest[0], strides=zeros + rest[1])
        if len(at) != 1:  # another place in each program
            raise OneByOne
        (at,) = at
        start = int(at.flat[0])
        strides = []
        expected = np.array(start)
        for axis, size in enumerate(at.shape):
            stride = int(at.take(1, axis).flat[0]) - start if size > 1 else 0
            strides.append(stride)
            expected = expected[..., None] + np.arange(size) * stride
        if not np.array_equal(expected, at):
            raise OneByOne
        return replace(element, offset=start, sizes=at.shape + rest[0], strides=tuple(strides) + rest[1])

    def tiles(self) -> list[View]:
        """Return the on-chip memory that is read or written."""
        return [made.view for made in self._accesses if made.view is not None]

    def commit(self) -> None:
        """Make the accesses in the order of one trip."""
        for made in self._accesses:
            if made.view is None:
                self.group.order.issue(S, made.op)
            elif made.writes:
                self.group.order.use(made.pipe, made.op, [], [made.view])
                self.group.chip.write(made.view, made.values, made.op)
            else:
                self.group.order.use(S, made.op, [made.view], [])


def meet(one: View | None, other: View) -> bool:
    """Return whether the bytes of two on-chip views may overlap."""
    if one is None:
        return False
    (first, last), (begin, end) = _bits(one), _bits(other)
    return first < end and begin < last


def _bits(view: View) -> tuple[int, int]:
    low, high = view.span()
    start = view.address * 8 + view.offset * view.item_bits
    return start + low * view.item_bits, start + (high + 1) * view.item_bits


def _begins_blocks(view: View) -> bool:
    """Return whether each row of a view of many begins a block, so that no two trips share one."""
    *strides, _ = view.strides
    item = view.item_bits // 8
    return (
        not any(step * item % BLOCK_BYTES for step in strides) and not (view.address + view.offset * item) % BLOCK_BYTES
    )


def _is_injective(view: View) -> bool:
    """Return whether no two trips use the same element."""
    reach = 0
    for stride, size in sorted((abs(stride), size) for stride, size in zip(view.strides, view.sizes, strict=True)):
        if size > 1:
            if stride <= reach:
                return False
            reach += stride * (size - 1)
    return True


_Compute = Callable[[Registers, Op], None]


def compute_step(op: Op) -> _Compute:
    if op.name == "arith.constant":
        return _constant
    if op.name == "memref.load":
        return _load
    if op.name == "memref.store":
        return _store
    if op.name in _VIEWS_AND_ROWS:
        return _VIEWS_AND_ROWS[op.name]
    function = wrapping_function(op)

    def scalar(registers: Registers, op: Op) -> None:
        registers[op.result] = function(*[registers[n] for n in op.operands])

    return scalar


def _constant(registers: Registers, op: Op) -> None:
    registers[op.result] = op.attributes["value"]


def _load(registers: Registers, op: Op) -> None:
    number, *indices = op.operands
    registers[op.result] = registers.read(op, registers.element(number, indices))


def _store(registers: Registers, op: Op) -> None:
    value, number, *indices = op.operands
    registers.write(op, registers.element(number, indices), registers[value])


def _reinterpret(registers: Registers, op: Op) -> None:
    source, *_ = op.operands
    (offset,), sizes, strides = (
        [registers[number] if known is None else known for known, number in part] for part in index_plan(op)
    )
    if any(isinstance(number, np.ndarray) for number in [*sizes, *strides]):
        raise OneByOne
    kind, view = op.result_type, registers[source]
    assert isinstance(kind, MemRef)
    registers[op.result] = replace(
        view, offset=offset, sizes=tuple(map(int, sizes)), strides=tuple(map(int, strides)), dtype=kind.dtype
    )


def _subview(registers: Registers, op: Op) -> None:
    (source,), *_ = op.segments()
    offsets, sizes, steps = (
        [registers[number] if known is None else known for known, number in part] for part in index_plan(op)
    )
    if any(isinstance(number, np.ndarray) for number in [*sizes, *steps]):
        raise OneByOne
    kind, view = op.result_type, registers[source]
    assert isinstance(kind, MemRef)
    kept = kept_dimensions(op.attributes["static_sizes"], kind.shape)
    registers[op.result] = replace(
        view,
        offset=view.offset + sum(at * stride for at, stride in zip(offsets, view.strides, strict=True)),
        sizes=tuple(max(0, int(sizes[i])) for i in kept),
        strides=tuple(view.strides[i] * int(steps[i]) for i in kept),
    )


def _collapse(registers: Registers, op: Op) -> None:
    registers[op.result] = collapsed(registers[op.operand], op.attributes["reassociation"])


def _load_row(registers: Registers, op: Op) -> None:
    source, target = op.operands[:2]
    registers.load_row(op, registers[source], registers[target])


_VIEWS_AND_ROWS = {
    "memref.reinterpret_cast": _reinterpret,
    "memref.subview": _subview,
    "memref.collapse_shape": _collapse,
    "hivm.hir.load": _load_row,
}
