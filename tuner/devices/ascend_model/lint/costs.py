"""What operations cost of a launch's modelled time."""

from __future__ import annotations

from collections.abc import Iterable

from tilewise.tuner.devices.ascend_model.clock.core import PIPES
from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.devices.ascend_model.report.analysis import LaunchCourse

__all__ = ["Costs"]


class Costs:
    """The critical path of a launch by operation; without a `course`, as the model cannot time it, nothing is known."""

    def __init__(self, course: LaunchCourse | None) -> None:
        self.course = course
        self._path: dict[int, float] = {}
        self._moving = 0.0
        for event, cycles in course.recording.critical_path() if course else ():
            assert course is not None
            time_us = cycles * course.cycle_us
            self._path[event.op] = self._path.get(event.op, 0.0) + time_us
            self._moving += time_us * (PIPES[event.pipe] == "MTE2")

    def of(self, operations: Iterable[Op]) -> float | None:
        """Return the microseconds of the critical path that these operations take, None if the launch is not timed."""
        if self.course is None:
            return None
        return sum(self._path.get(op.number - 1, 0.0) for op in operations)

    def hidden_at_most(self, loads: Iterable[Op]) -> float | None:
        """Return the microseconds that these loads take of the critical path, as far as other work on it is long enough
        to hide them."""
        exposed = self.of(loads)
        return None if exposed is None else min(exposed, sum(self._path.values()) - self._moving)
