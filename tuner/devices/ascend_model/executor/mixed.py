"""An executor of mixed kernels: a function on a cube core beside another on two vector cores.

Each core executes its own code in turns with the others (`clock/turns.py`). They meet in workspace, global memory that
each program has to itself, and order what they do there by counted flags. A flag that the cube core sets is for both
vector cores; one that it waits for has to be set by both.

Programs run side by side here too. Where the cores split them differently, a group may wait for another one that the
same core has yet to execute. Then the launch is executed again, one program at a time: a program that still waits is
wrong.

Where the compiler gives both vector cores all of the work, the second one too loads what a program adds to and stores,
beside the first one, which alone stores it. So a launch with a race is executed once more, with poison for what the
second core loads of the arguments that vector cores store to. Whatever it loads is shown not to matter then; otherwise
the poison comes out, or the race is real.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.tuner.devices.ascend_model.clock.core import MTE2, core_name, pipe_number
from tilewise.tuner.devices.ascend_model.clock.turns import Deadlock, Turns
from tilewise.tuner.devices.ascend_model.executor.executor import Executor, side_by_side
from tilewise.tuner.devices.ascend_model.executor.global_memory import (
    GlobalMemory,
    buffers_of,
    require_transfer,
    written_arguments,
)
from tilewise.tuner.devices.ascend_model.executor.groups import Group, Step
from tilewise.tuner.devices.ascend_model.executor.hazards import FlagFault, Order, Race
from tilewise.tuner.devices.ascend_model.executor.memory import POISON, STRAYS, Array, Fault, View, place
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, Op
from tilewise.tuner.devices.ascend_model.ir.workspace import CROSS_FLAGS, allocated, areas, cross_flag

__all__ = ["MixedExecutor", "executor_of"]

_CORES = 3
"""A cube core (0) and two vector cores."""

_MOST_SET = 15
"""Flags of one number that may be set and not yet waited for: the hardware counts them in four bits."""


def executor_of(
    function: Function, on_chip_bytes: int, *, order: Callable[[int], Order] | None = None, stray: int = STRAYS[0]
) -> Executor | MixedExecutor:
    """Return the executor of a function on the cores that it is compiled for; see `Executor`."""
    kind = MixedExecutor if function.vector else Executor
    return kind(function, on_chip_bytes, order=order, stray=stray)


class MixedExecutor:
    """A mixed kernel; see `Executor`, whose interface this has."""

    def __init__(
        self,
        function: Function,
        on_chip_bytes: int,
        *,
        order: Callable[[int], Order] | None = None,
        stray: int = STRAYS[0],
    ) -> None:
        self._function, self._stray = function, stray
        self._arguments = set().union(*(written_arguments(half) for half in function.halves()))
        self._areas = areas(function)
        self._bases = range(len(function.arguments), len(function.arguments) + len(self._areas))
        self._written = set() if order else {*self._arguments, *self._bases}
        self._halves = [_Half(half, on_chip_bytes, function, order, stray) for half in function.halves()]
        self.memory = GlobalMemory({}, [], (), stray)

    @property
    def unbarriered(self) -> set[str]:
        return self._halves[0].unbarriered | self._halves[1].unbarriered

    def run(self, buffers: dict[str, Array], scalars: Sequence[int | float], grid: Sequence[int]) -> None:
        """Execute a launch; see `Executor.run`."""
        sizes = [*grid, 1, 1][:3]
        given = buffers_of(self._function, list(buffers))
        held = {argument: buffers[name] for argument, name in given.items()}
        before = {argument: held[argument].copy() for argument in self._arguments}

        def launch(together: int) -> None:
            for argument, kept in before.items():
                held[argument][...] = kept
            self._launch(held, given, [*scalars, *sizes], together)

        cube, vector = self._halves
        program_bytes = cube.on_chip_bytes + 2 * vector.on_chip_bytes
        vector.unread = frozenset()
        try:
            _in_turns(launch, math.prod(sizes), program_bytes)
        except Race as race:
            vector.unread = frozenset(written_arguments(vector.function))
            try:
                _in_turns(launch, math.prod(sizes), program_bytes)
            except Fault:
                raise race from None

    def _launch(
        self, held: Mapping[int, Array], names: Mapping[int, str], scalars: Sequence[int | float], together: int
    ) -> None:
        workspace = {
            base: np.zeros(together * area.size, np.uint8).view(f"u{area.item_bytes}")
            for base, area in zip(self._bases, self._areas, strict=True)
        }
        named = [names.get(p, f"argument {p}") for p in range(self._bases.start)] + ["workspace"] * len(self._areas)
        self.memory = GlobalMemory({**held, **workspace}, named, self._written, self._stray)
        programs = np.arange(math.prod(int(size) for size in scalars[-3:]), dtype=np.int64)
        for start in range(0, len(programs), together):
            for base in self._bases:
                self.memory.poison(base)
            self._side_by_side(programs[start : start + together], scalars)

    def _side_by_side(self, programs: Array, scalars: Sequence[int | float]) -> None:
        turns = Turns()
        flags = _CrossFlags(turns)
        for half in self._halves:
            half.begin(self.memory, flags, int(programs[0]))
        cube, vector = self._halves
        cores = ((cube, 0), (vector, 1), (vector, 2))
        turns.run([_course(half, programs, scalars, core) for half, core in cores])
        flags.finish()


def _in_turns(launch: Callable[[int], None], programs: int, program_bytes: int) -> None:
    """Launch as many programs side by side as fit, or one at a time if these wait for one another."""
    together = min(programs, side_by_side(program_bytes))
    try:
        launch(together)
    except Deadlock as deadlock:
        if together == 1:
            raise FlagFault(str(deadlock)) from deadlock
        try:
            launch(1)
        except Deadlock as alone:
            raise FlagFault(str(alone)) from alone


def _course(half: Executor, programs: Array, scalars: Sequence[int | float], core: int) -> Callable[[], None]:
    return lambda: half.execute(programs, scalars, core, _CORES)


class _CrossFlags:
    """The flags between the cores of each program that are set, in the order in which they were."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._set: dict[tuple[int, int, int, int], deque[_Set]] = {}
        """By the cores that set a flag and wait for it, its number, and the program."""

    def set(self, group: Group, pipe: int, number: int, op: Op) -> None:
        """Set a flag once the pipe's earlier operations are done; raises `FlagFault` if it is set too often."""
        core = group.order.core
        made = _Set(group.order.clock(pipe), op)
        for target in (1, 2) if core == 0 else (0,):
            for program in group.programs.tolist():
                waiting = self._set.setdefault((core, target, number, program), deque())
                waiting.append(made)
                if len(waiting) > _MOST_SET:
                    raise FlagFault(f"{place(op)} sets flag {number} of the {core_name(core)} {len(waiting)} times")

    def wait(self, group: Group, pipe: int, number: int, op: Op) -> list[Group]:
        """Wait for a flag of each program, which are split where different operations set it."""
        core = group.order.core
        sources = (1, 2) if core == 0 else (0,)
        keys = [[(source, core, number, program) for source in sources] for program in group.programs.tolist()]
        text = f"the {core_name(core)} waits at {place(op)} for flag {number}, which is not set"
        self._turns.wait(lambda: all(self._set.get(key) for each in keys for key in each), text)
        taken = [tuple(self._set[key].popleft() for key in each) for each in keys]
        distinct = list(dict.fromkeys(taken))
        members = np.array([distinct.index(each) for each in taken])
        groups = group.divide(members, len(distinct))
        for part, sets in zip(groups, distinct, strict=True):
            for made in sets:
                part.order.wait(pipe, made.clock)
        return groups

    def finish(self) -> None:
        """Raise `FlagFault` if a flag stays set: the next program on these cores would not wait for it."""
        for (core, _, number, _), waiting in sorted(self._set.items()):
            if waiting:
                raise FlagFault(
                    f"flag {number} of the {core_name(core)} is set at {place(waiting[0].op)} and never waited for"
                )


@dataclass(frozen=True, eq=False, slots=True)
class _Set:
    """A flag that was set: the time up to which pipes are then done."""

    clock: Array
    op: Op


class _Half(Executor):
    """The function of one kind of core.

    The second vector core gets poison for what it loads of the arguments in `unread`, and reads none of it.
    """

    unread: frozenset[int] = frozenset()

    def __init__(
        self, function: Function, on_chip_bytes: int, whole: Function, order: Callable[[int], Order] | None, stray: int
    ) -> None:
        self._kernel = whole
        super().__init__(function, on_chip_bytes, order=order, stray=stray)

    def begin(self, memory: GlobalMemory, flags: _CrossFlags, first: int) -> None:
        """Take the memory and the flags of a launch's programs from `first` on."""
        self.memory, self._flags, self._first = memory, flags, first

    def step(self, op: Op) -> Step:
        if op.name in _STEPS:
            return _STEPS[op.name](self, op)
        return super().step(op)

    def _workspace(self, op: Op) -> Step:
        number, area, made = allocated(op, self._kernel)
        base, kind, result = len(self._kernel.arguments) + number, made.kind, op.result
        within, each = (made.start - area.start) // made.item_bytes, area.size // made.item_bytes

        def allocate(group: Group) -> None:
            own: Any = (group.programs - self._first) * each + within
            if len(group.programs) == 1:
                own = int(own[0])
            group.values[result] = View(base, 0, own, kind.shape, kind.strides, kind.dtype)

        return allocate

    def _load(self, op: Op) -> Step:
        load = super()._load(op)
        source, target = op.operands[:2]

        def load_or_poison(group: Group) -> None:
            outside, inside = group.values[source], group.values[target]
            if group.order.core < _CORES - 1 or outside.base not in self.unread or not inside.elements():
                load(group)
                return
            require_transfer(outside, inside, op)
            group.order.use(MTE2, op, [], [inside])
            stored = group.chip.stored(inside, op)
            stored[...] = np.full(stored.itemsize, POISON, np.uint8).view(stored.dtype)
            group.chip.fill_block(inside, np.nan if inside.dtype in ("f16", "f32", "bf16", "f64") else -1, op)

        return load_or_poison

    def _sub_block(self, op: Op) -> Step:
        def sub_block(group: Group) -> None:
            group.values[op.result] = group.order.core - 1

        return sub_block

    def _cross_flag(self, op: Op) -> Step:
        flag = cross_flag(op, self.function)
        sets = op.name == "hivm.hir.sync_block_set"
        pipe = pipe_number(flag.pipe, self.function)

        def cross(group: Group) -> list[Group]:
            groups = []
            for part in group.split(op.operands):
                number = flag.number(part.values)
                if sets:
                    self._flags.set(part, pipe, number, op)
                    groups.append(part)
                else:
                    groups += self._flags.wait(part, pipe, number, op)
            return groups

        return cross


_STEPS: Mapping[str, Callable[[_Half, Op], Step]] = {
    "memref_ext.alloc_workspace": _Half._workspace,
    "hivm.hir.get_sub_block_idx": _Half._sub_block,
    "hivm.hir.load": _Half._load,
    **dict.fromkeys(CROSS_FLAGS, _Half._cross_flag),
}
