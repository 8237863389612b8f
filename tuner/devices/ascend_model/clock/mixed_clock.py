"""One program of a mixed kernel: a cube core and two vector cores, each with a clock of its own.

They run at the same time from the program's start, and exchange times by the flags that order their work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewise.tuner.devices.ascend_model.clock.core import Memory, ProgramTime
from tilewise.tuner.devices.ascend_model.clock.half_clock import CrossTimes, HalfClock, HalfCore
from tilewise.tuner.devices.ascend_model.clock.program_clock import Contents
from tilewise.tuner.devices.ascend_model.clock.turns import Turns
from tilewise.tuner.devices.ascend_model.ir.hivm import Function
from tilewise.tuner.devices.ascend_model.ir.workspace import areas
from tilewise.tuner.hardware.ascend_costs import Costs

__all__ = ["MixedClock"]


class MixedClock:
    """A mixed kernel ready to be timed; see `ProgramClock`, whose interface this has."""

    def __init__(self, function: Function, costs: Costs, contents: Contents | None = None) -> None:
        self._halves = [self._clock(half, costs, function, contents) for half in function.halves()]
        self._functions = function.halves()
        self._arguments = len(function.arguments) + len(areas(function))

    def _clock(self, half: Function, costs: Costs, whole: Function, contents: Contents | None) -> HalfClock:
        return HalfClock(half, costs, whole, contents)

    def _core(self, program: int, function: Function, number: int, cross: CrossTimes) -> HalfCore:
        return HalfCore(program, self._arguments, function, number, cross)

    def run(self, arguments: Sequence[int | float], program: int, memory: Memory) -> ProgramTime:
        """Time one program; raises `ValueError` if its cores wait for one another."""
        assert memory.vector is not None
        turns = Turns()
        cross = CrossTimes(turns)

        def course(kind: int, number: int, rates: Memory) -> Callable[[], ProgramTime]:
            core = self._core(program, self._functions[kind], number, cross)
            return lambda: self._halves[kind].run(arguments, program, rates, core)

        cores = turns.run([course(0, 0, memory), course(1, 1, memory.vector), course(1, 2, memory.vector)])
        return ProgramTime.together(cores)
