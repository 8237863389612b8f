"""Loops that store one element of global memory in each trip, executed for all trips at once.

Values and addresses of all trips are known before anything is stored, as registers are arrays with an axis for each
loop. Where no two trips store to the same element, and nothing else uses one, the stores may be made in any order. The
order of pipes depends on nothing but which conditions hold in a trip and which of its addresses a cell has. Trips in
which these are the same are of one kind. A few trips are taken pipe by pipe, in which kinds follow one another in all
the ways in which they do in the loop: that shows whether flags keep the uses of a cell apart. Programs whose trips
follow one another in other ways are split. Where something is amiss or not known, the loop is executed as it stands,
which names it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tilewise.tuner.devices.ascend_model.clock.core import MTE3, S, pipe_number
from tilewise.tuner.devices.ascend_model.executor.element_loops import OneByOne, Registers, compute_step, meet
from tilewise.tuner.devices.ascend_model.executor.global_memory import GlobalMemory
from tilewise.tuner.devices.ascend_model.executor.groups import Group, Step, run_steps
from tilewise.tuner.devices.ascend_model.executor.hazards import Order
from tilewise.tuner.devices.ascend_model.executor.memory import Array, Fault, Layout, View, encode, place
from tilewise.tuner.devices.ascend_model.ir.element_loops import ScatterLoop
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, MemRef, Op

__all__ = ["scattered"]

_FEW = 16
"""Trips below which a loop is executed as it stands."""

_OFTEN = 3
"""Times that one kind of trip follows another pipe by pipe: a cell has two addresses at most, and a flag for each."""

_LONGEST = 256
"""Limit on the trips that are taken pipe by pipe."""


class _Launch(Protocol):
    """The executor, as far as a loop needs it."""

    memory: GlobalMemory
    layout: Layout
    function: Function

    def step(self, op: Op) -> Step: ...


def scattered(launch: _Launch, found: ScatterLoop, one_by_one: Step) -> Step:
    """Compile a nest of loops; `one_by_one` executes it as it stands."""
    views, tiles = ([launch.step(op) for op in operations] for operations in (found.views, found.tiles))

    def loop(group: Group) -> list[Group]:
        return [end for part in group.split(found.bounds) for end in whole(part)]

    def whole(group: Group) -> list[Group]:
        trips = [range(*(int(group.values[n]) for n in level.op.operands)) for level in found.levels]
        if math.prod(map(len, trips)) < _FEW:
            return one_by_one(group) or [group]
        (group,) = run_steps(views, [group])
        body = _Body(launch, group, trips, [group.values[number] for number in found.stored])
        try:
            for level in found.levels:
                body.registers.count(level.index)
                body.take(level.operations, ())
            body.try_out()
        except OneByOne:
            return one_by_one(group) or [group]
        run_steps(tiles, [group])
        return body.commit()

    return loop


_Masks = tuple[Array, ...]
"""The conditions around an operation that are not the same in all trips of all programs."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """An element of on-chip memory, at one of several addresses in turn. `name` is the value of its `pointer_cast`."""

    name: int
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class _Act:
    """An operation of a trip that the order of pipes depends on. `event` is a flag's, a number or one for each trip."""

    op: Op
    masks: _Masks
    run: Callable[[Order, int, int], None]
    event: Any


@dataclass(frozen=True, slots=True)
class _Put:
    """A number that the scalar unit puts into a cell in each trip."""

    op: Op
    cell: _Cell
    values: Any
    masks: _Masks


@dataclass(frozen=True, slots=True)
class _Store:
    """A transfer from a cell to an element of global memory in each trip; its offset is a number or an array."""

    op: Op
    put: _Put
    element: View
    masks: _Masks


class _Body:
    """The trips of a nest in one group of programs: first all that is computed, then what it changes."""

    def __init__(self, launch: _Launch, group: Group, trips: Sequence[range], stored: Sequence[View]) -> None:
        self.registers = Registers(group, launch.memory, trips)
        self._launch, self._group, self._stored = launch, group, stored
        self._shape = (len(group.programs), *map(len, trips))
        self._cells: dict[int, _Cell] = {}
        self._held: dict[int, _Put] = {}
        self._puts: list[_Put] = []
        self._stores: list[_Store] = []
        self._acts: list[_Act] = []
        self._scatters: list[_Scatter] = []

    # What is computed ------------------------------------------------------------------------------------------

    def take(self, operations: Sequence[Op], masks: _Masks) -> None:
        """Compute operations in the trips in which all masks hold."""
        for op in operations:
            if op.name in _TAKEN:
                _TAKEN[op.name](self, op, masks)
            elif op.name not in ("annotation.mark", "scf.yield"):
                if op.name.startswith("memref.") and op.operands[0] in self._cells:
                    raise OneByOne
                compute_step(op)(self.registers, op)

    def _if(self, op: Op, masks: _Masks) -> None:
        condition = self.registers[op.operand]
        if isinstance(condition, np.ndarray) and condition.size > 1:
            self.take(op.regions[0].operations, (*masks, np.broadcast_to(condition != 0, self._shape)))
        elif condition:
            self.take(op.regions[0].operations, masks)

    def _pointer_cast(self, op: Op, masks: _Masks) -> None:
        kind, addresses = op.result_type, [self.registers[number] for number in op.segments()[0]]
        assert isinstance(kind, MemRef)
        if math.prod(kind.shape) != 1 or kind.dtype == "i1" or any(isinstance(each, np.ndarray) for each in addresses):
            raise OneByOne
        start = self._launch.layout.starts[kind.space]
        views = tuple(View(-1, start + int(at), 0, kind.shape, kind.strides, kind.dtype) for at in addresses)
        self._cells[op.result] = _Cell(op.result, views)

    def _collapse(self, op: Op, masks: _Masks) -> None:
        if op.operand in self._cells:
            self._cells[op.result] = self._cells[op.operand]
        else:
            compute_step(op)(self.registers, op)

    def _put(self, op: Op, masks: _Masks) -> None:
        value, number, *_ = op.operands
        if number not in self._cells:
            raise OneByOne
        cell = self._cells[number]
        before = self._held.get(cell.name)
        if before is not None and not _same(before.masks, masks):
            raise OneByOne
        for name in [name for name, put in self._held.items() if name != cell.name and _overlap(put.cell, cell)]:
            del self._held[name]
        put = _Put(op, cell, self.registers[value], masks)
        self._held[cell.name] = put
        self._puts.append(put)
        self._act(op, masks, lambda order, turn, event: order.use(S, op, [], [cell.views[turn % len(cell.views)]]))

    def _store(self, op: Op, masks: _Masks) -> None:
        source, target = op.operands[:2]
        if source not in self._cells or self._cells[source].name not in self._held:
            raise OneByOne
        put, element = self._held[self._cells[source].name], self.registers[target]
        if not _same(put.masks, masks[: len(put.masks)]) or element.on_chip or element.elements() != 1:
            raise OneByOne
        views = put.cell.views
        if element.dtype != views[0].dtype:
            raise OneByOne
        self._stores.append(_Store(op, put, element, masks))
        self._act(op, masks, lambda order, turn, event: order.use(MTE3, op, [views[turn % len(views)]], []))

    def _flag(self, op: Op, masks: _Masks) -> None:
        source, target = (pipe_number(op.attributes[end], self._launch.function) for end in ("set_pipe", "wait_pipe"))
        static, sets = op.attributes.get("static_event_id"), op.name == "hivm.hir.set_flag"
        number = self.registers[op.operand] if static is None else int(static.removeprefix("EVENT_ID"))

        def flag(order: Order, turn: int, event: int) -> None:
            (order.set_flag if sets else order.wait_flag)(source, target, event, op)

        self._act(op, masks, flag, number)

    def _barrier(self, op: Op, masks: _Masks) -> None:
        pipe = (
            None if op.attributes["pipe"] == "PIPE_ALL" else pipe_number(op.attributes["pipe"], self._launch.function)
        )
        self._act(op, masks, lambda order, turn, event: order.barrier(pipe))

    def _act(self, op: Op, masks: _Masks, run: Callable[[Order, int, int], None], event: Any = 0) -> None:
        self._acts.append(_Act(op, masks, run, event))

    # What it changes -------------------------------------------------------------------------------------------

    def try_out(self) -> None:
        """Raise `OneByOne` unless the changes may be made; none is."""
        self._require_apart()
        self._scatters = [self._scatter(store) for store in self._stores]
        self._require_free(self._scatters)
        if self._group.order.checks:
            self._courses()

    def commit(self) -> list[Group]:
        """Make the changes, and return the parts that the group was split into."""
        self.registers.commit()
        courses = [_Course([*range(len(self._group.programs))], self._group.order, {})]
        if self._group.order.checks:
            courses = self._courses()
        self._leave_in_cells()
        members = np.zeros(len(self._group.programs), np.int64)
        for number, course in enumerate(courses):
            members[course.programs] = number
            course.keep(self._launch.memory, self._group, self._scatters)
        groups = self._group.divide(members, len(courses))
        for part, course in zip(groups, courses, strict=True):
            part.order = course.order
        return groups

    def _require_apart(self) -> None:
        """Raise `OneByOne` unless cells are apart from all that is read or stored as a tile, and each one's addresses
        from one another."""
        tiles = [*self._stored, *self.registers.tiles()]
        for cell in self._cells.values():
            for at, view in enumerate(cell.views):
                if any(meet(other, view) for other in [*cell.views[:at], *tiles]):
                    raise OneByOne
        if self.registers.gathered & {store.element.base for store in self._stores}:
            raise OneByOne

    def _scatter(self, store: _Store) -> _Scatter:
        """Return the elements that a transfer stores in all its trips, or in the last one if they are the same."""
        chosen = self._where(store.masks)
        if math.prod(np.shape(store.element.offset)[1:]) == 1:
            chosen = _last(chosen)
        programs, _ = np.nonzero(chosen)
        at = self._flat(store.element.offset)[chosen]
        values = encode(self._flat(store.put.values)[chosen], store.element.dtype)
        return _Scatter(store, at, values, programs)

    def _require_free(self, scatters: Sequence[_Scatter]) -> None:
        for base in {each.store.element.base for each in scatters}:
            those = [each for each in scatters if each.store.element.base == base]
            at = np.concatenate([each.at for each in those])
            if len(np.unique(at)) != len(at) or len({each.store.element.dtype for each in those}) > 1:
                raise OneByOne
        for each in scatters:
            programs = self._group.programs[each.programs]
            memory, order = self._launch.memory, self._group.order
            if not memory.is_free(order, MTE3, each.store.op, each.store.element, each.at, programs):
                raise OneByOne

    def _courses(self) -> list[_Course]:
        """Return programs whose trips follow one another in the same ways, and the order of pipes after them."""
        kinds, active = self._kinds()
        most = int(kinds.max()) + 1
        found: dict[tuple[bytes, bytes], list[int]] = {}
        for program in range(len(kinds)):
            ran = kinds[program][active[program]].astype(np.int64)
            ways = np.unique(ran[:-1] * most + ran[1:])
            last = ran[::-1][np.sort(np.unique(ran[::-1], return_index=True)[1])]
            found.setdefault((ways.tobytes(), last.tobytes()), []).append(program)
        return [self._course(programs, kinds, active) for programs in found.values()]

    def _course(self, programs: list[int], kinds: Array, active: Array) -> _Course:
        first = programs[0]
        trips = np.flatnonzero(active[first])
        order, turns = self._group.order.copy(), self._turns()
        stored: dict[int, int] = {}
        try:
            for trip in trips[_enough(kinds[first][trips].tolist())].tolist():
                self._trip(order, first, trip, int(turns[trip]), stored)
        except Fault as fault:
            raise OneByOne from fault
        return _Course(programs, order, stored)

    def _trip(self, order: Order, program: int, trip: int, turn: int, stored: dict[int, int]) -> None:
        """Issue the operations of a trip; `stored` has the time of each transfer's last one."""
        at: tuple[Any, ...] = (program, *np.unravel_index(trip, self._shape[1:]))
        for act in self._acts:
            if all(mask[at] for mask in act.masks):
                before = stored.get(act.op.number)
                if before is not None and before > order.done(MTE3)[order.key(MTE3)] and self._stays(act.op):
                    raise OneByOne
                act.run(order, turn, int(np.broadcast_to(act.event, self._shape)[at]))
                if act.op.name == "hivm.hir.store":
                    stored[act.op.number] = order.now

    def _stays(self, op: Op) -> bool:
        """Return whether a transfer stores to the same element in all trips, so that each has to follow the last."""
        elements = [store.element for store in self._stores if store.op is op]
        return any(math.prod(np.shape(element.offset)[1:]) == 1 for element in elements)

    def _kinds(self) -> tuple[Array, Array]:
        """Return the kind of each program's trips as a number, and in which of them anything happens."""
        kinds = np.broadcast_to(self._turns(), (self._shape[0], math.prod(self._shape[1:])))
        active = np.zeros(kinds.shape, bool)
        for act in self._acts:
            chosen = self._where(act.masks)
            active |= chosen
            _, events = np.unique(np.where(chosen, self._flat(act.event), -1), return_inverse=True)
            _, kinds = np.unique(kinds * (events.max() + 1) + events.reshape(kinds.shape), return_inverse=True)
            kinds = kinds.reshape(active.shape)
        return kinds, active

    def _turns(self) -> Array:
        """Return the turn of the cells' addresses in each trip, which all programs take alike."""
        count = math.prod(self._shape[1:])
        period = math.lcm(*(len(cell.views) for cell in self._cells.values()))
        turns: Array = (self._group.iteration() * count + np.arange(count)) % period
        return turns

    def _leave_in_cells(self) -> None:
        """Leave in each cell what the last trip put there."""
        turns = self._turns()
        latest = {view.address: np.full((self._shape[0], 1), -1) for put in self._puts for view in put.cell.views}
        for put in self._puts:
            for turn, view in enumerate(put.cell.views):
                last = _last(self._where(put.masks) & (turns % len(put.cell.views) == turn))
                last &= np.arange(last.shape[1]) >= latest[view.address]
                latest[view.address] = np.maximum(latest[view.address], last.argmax(axis=1)[:, None])
                held, values = self._group.chip.stored(view, put.op), encode(self._flat(put.values), view.dtype)
                programs, trips = np.nonzero(last)
                held.reshape(len(held), -1)[programs, 0] = values[programs, trips]

    def _where(self, masks: _Masks) -> Array:
        """Return the trips of each program in which all masks hold."""
        found = np.ones((self._shape[0], math.prod(self._shape[1:])), bool)
        for mask in masks:
            found &= mask.reshape(found.shape)
        return found

    def _flat(self, value: Any) -> Array:
        """Return a register as an array of programs and trips."""
        flat: Array = np.broadcast_to(value, self._shape).reshape(self._shape[0], -1)
        return flat


@dataclass(frozen=True, slots=True)
class _Scatter:
    """Elements of global memory with their values, and the programs that store them, by their place in the group."""

    store: _Store
    at: Array
    values: Array
    programs: Array


@dataclass(frozen=True, slots=True)
class _Course:
    """Programs by their places in the group, the order of pipes after their trips, and the time of each transfer's last
    one by its operation's number."""

    programs: list[int]
    order: Order
    stored: dict[int, int]

    def keep(self, memory: GlobalMemory, group: Group, scatters: Sequence[_Scatter]) -> None:
        """Store what these programs store."""
        for each in scatters:
            own = np.isin(each.programs, self.programs)
            op = each.store.op
            made = (self.stored.get(op.number, 0), f"{place(op)} on {self.order.pipe_name(MTE3)}")
            key, programs = self.order.key(MTE3), group.programs[each.programs[own]]
            memory.scatter(each.store.element, each.at[own], each.values[own], programs, key, made)


def _enough(kinds: Sequence[int]) -> list[int]:
    """Return trips in which kinds follow one another in all the ways in which they do, `_OFTEN` times, and last in the
    same order. Between them, trips that lead back to the kind of an earlier one are left out."""
    follows: Counter[tuple[int, int]] = Counter()
    last = {kind: trip for trip, kind in enumerate(kinds)}
    kept: list[int] = []
    needed = 0
    for trip, kind in enumerate(kinds):
        way = (kinds[trip - 1] if trip else -1, kind)
        follows[way] += 1
        back = next((at for at in range(needed, len(kept)) if kinds[kept[at]] == kind), None)
        matters = follows[way] <= _OFTEN or last[kind] == trip
        if matters or back is None:
            kept.append(trip)
            needed = len(kept) - 1 if matters else needed
        else:
            del kept[back + 1 :]
    if len(kept) > _LONGEST:
        raise OneByOne
    return kept


def _overlap(one: _Cell, other: _Cell) -> bool:
    return any(meet(a, b) for a in one.views for b in other.views)


def _same(some: _Masks, others: _Masks) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def _last(chosen: Array) -> Array:
    """Return the last of the chosen trips of each program."""
    found: Array = chosen & (np.cumsum(chosen, axis=1) == chosen.sum(axis=1, keepdims=True))
    return found


_TAKEN: dict[str, Callable[[_Body, Op, _Masks], None]] = {
    "scf.if": _Body._if,
    "hivm.hir.pointer_cast": _Body._pointer_cast,
    "hivm.hir.store": _Body._store,
    "hivm.hir.set_flag": _Body._flag,
    "hivm.hir.wait_flag": _Body._flag,
    "hivm.hir.pipe_barrier": _Body._barrier,
    "memref.collapse_shape": _Body._collapse,
    "memref.store": _Body._put,
}
