"""One core's part of a program of a mixed kernel: a program clock that knows workspace and flags between cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tilewise.tuner.devices.ascend_model.clock.core import Core, S, pipe_number, pipes_of
from tilewise.tuner.devices.ascend_model.clock.element_loops import element_loop
from tilewise.tuner.devices.ascend_model.clock.program_clock import Contents, ProgramClock, Step
from tilewise.tuner.devices.ascend_model.clock.turns import Turns
from tilewise.tuner.devices.ascend_model.ir.element_loops import ElementLoop
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, Op
from tilewise.tuner.devices.ascend_model.ir.values import DependsOnContents, View
from tilewise.tuner.devices.ascend_model.ir.workspace import CROSS_FLAGS, allocated, cross_flag
from tilewise.tuner.hardware.ascend_costs import Costs

__all__ = ["CrossTimes", "HalfClock", "HalfCore"]


class CrossTimes:
    """The times, in cycles, at which flags between the cores of one program are set.

    Core 0 is the cube core, whose flags are for both others; one that it waits for has to be set by both.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._set: dict[tuple[int, int, int], deque[float]] = {}
        """By the cores that set a flag and wait for it, and its number."""

    @staticmethod
    def others(core: int) -> tuple[int, ...]:
        """Return the cores with which a core exchanges flags: those that its flags are for, and that it waits for."""
        return (1, 2) if core == 0 else (0,)

    def set(self, core: int, number: int, time: float) -> None:
        for target in self.others(core):
            self._set.setdefault((core, target, number), deque()).append(time)

    def wait(self, core: int, number: int) -> float:
        """Return when the flag is set, after other cores had their turns; raises `Deadlock` if it never is."""
        keys = [(source, core, number) for source in self.others(core)]
        self._turns.wait(lambda: all(self._set.get(key) for key in keys), f"core {core} waits for flag {number}")
        return max(self._set[key].popleft() for key in keys)


class HalfCore(Core):
    """One of the cores of a mixed program."""

    __slots__ = ("cross", "number")

    def __init__(self, program: int, arguments: int, function: Function, number: int, cross: CrossTimes) -> None:
        super().__init__(program, arguments, pipes_of(function))
        self.number, self.cross = number, cross

    def set_cross_flag(self, pipe: int, flag: int) -> None:
        self.cross.set(self.number, flag, max(self.free[S], self.free[pipe], self.done[pipe]))

    def wait_cross_flag(self, pipe: int, flag: int, cycles: float) -> None:
        self.free[pipe] = max(self.free[pipe], self.cross.wait(self.number, flag) + cycles)


class HalfClock(ProgramClock):
    """The clock of one kind of core's function. `whole` is the kernel that it is a half of."""

    def __init__(
        self, function: Function, costs: Costs, whole: Function | None = None, contents: Contents | None = None
    ) -> None:
        self._whole = whole or function
        super().__init__(function, costs, contents)

    def _step(self, op: Op) -> Step | None:
        if op.name in _STEPS:
            return _STEPS[op.name](self, op)
        return super()._step(op)

    def _workspace(self, op: Op) -> Step:
        number, area, made = allocated(op, self._whole)
        kind = made.kind
        offset = (made.start - area.start) // made.item_bytes
        view = View(len(self._whole.arguments) + number, offset, kind.shape, kind.strides, kind.item_bits)
        result = op.result

        def allocate(values: list[Any], core: Core) -> None:
            values[result] = view

        return allocate

    def _for(self, op: Op) -> Step:
        found = ElementLoop.of(op)
        return element_loop(self, found) if found else super()._for(op)

    def _halvings(self, rows: int, row_repeats: int) -> int:
        """Return one instruction per row or per column of 256 bytes, whichever is fewer, as the compiler's public
        template of element-wise operations on rows that lie apart has it, which halves them."""
        return min(rows, row_repeats)

    def _sub_block(self, op: Op) -> Step:
        result = op.result

        def sub_block(values: list[Any], core: Core) -> None:
            assert isinstance(core, HalfCore)
            values[result] = core.number - 1

        return sub_block

    def _cross_flag(self, op: Op) -> Step:
        flag, cost = cross_flag(op, self._function), self.costs["cross_flag"]
        issue, pipe = self.costs["vector_issue"], pipe_number(flag.pipe, self._function)
        sets = op.name == "hivm.hir.sync_block_set"

        def cross(values: list[Any], core: Core) -> None:
            assert isinstance(core, HalfCore)
            core.scalar(issue)
            try:
                number = flag.number(values)
            except TypeError as error:
                raise DependsOnContents(f"the model cannot follow {op.name} of a flag that depends on data") from error
            if sets:
                core.set_cross_flag(pipe, number)
            else:
                core.wait_cross_flag(pipe, number, cost)

        return cross


_STEPS: Mapping[str, Callable[[HalfClock, Op], Step]] = {
    "scf.for": HalfClock._for,
    "memref_ext.alloc_workspace": HalfClock._workspace,
    "hivm.hir.get_sub_block_idx": HalfClock._sub_block,
    **dict.fromkeys(CROSS_FLAGS, HalfClock._cross_flag),
}
