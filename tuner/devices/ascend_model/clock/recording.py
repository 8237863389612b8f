"""A program's course in full: what each pipe did when, what it waited for, and which chain of these made the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewise.tuner.devices.ascend_model.clock.core import PIPES, Core, Memory, ProgramTime, S
from tilewise.tuner.devices.ascend_model.clock.program_clock import ProgramClock, Step
from tilewise.tuner.devices.ascend_model.ir.hivm import Block, Function
from tilewise.tuner.hardware.ascend_costs import Costs

__all__ = ["Event", "Flow", "Recording", "record"]


@dataclass(frozen=True, slots=True)
class Event:
    """What a pipe did for one operation, in cycles from the program's start.

    From `start` to `end` the pipe was busy, or, where `work` is False, held up by a flag or barrier; at `done` the
    result was there. `op` is the operation's place in the order of the text, `cause` the event that decided `start`
    (-1: none, the program's start).
    """

    pipe: int
    op: int
    start: float
    end: float
    done: float
    cause: int
    work: bool


@dataclass(frozen=True, slots=True)
class Flow:
    """A flag: the events, by number, before it was set and after it was waited for."""

    source: int
    target: int
    event: int


@dataclass(frozen=True, slots=True)
class Recording:
    """All events of one program in the order they were issued; the last is its end. `names` are of operations."""

    time: ProgramTime
    events: Sequence[Event]
    flows: Sequence[Flow]
    names: Sequence[str]

    def critical_path(self) -> Iterator[tuple[Event, float]]:
        """The events that made the program end when it did, from the end to the start, each with the cycles from its
        start to that of the next. They add up to the program's time."""
        number, until = len(self.events) - 1, self.time.cycles
        while number >= 0:
            event = self.events[number]
            yield event, until - event.start
            number, until = event.cause, event.start


def record(
    function: Function, costs: Costs, arguments: Sequence[int | float], program: int, memory: Memory
) -> Recording:
    """Time one program without skipping any iteration; see `Timeline.run`."""
    timeline = _Recorded(function, costs)
    core = _Recorder(program, len(function.arguments))
    time = timeline.run(arguments, program, memory, core)
    return Recording(time, core.events, core.flows, [op.name for op in function.body.walk()])


class _Recorded(ProgramClock):
    """Tells the core which operation it is at."""

    skipping = False

    def __init__(self, function: Function, costs: Costs) -> None:
        self._orders = {id(op): order for order, op in enumerate(function.body.walk())}
        super().__init__(function, costs)

    def _compile(self, block: Block) -> list[Step]:
        return [_told(step, self._orders[id(op)]) for op in block.operations if (step := self._step(op)) is not None]


def _told(step: Step, order: int) -> Step:
    def told(values: list[object], core: Core) -> None:
        assert isinstance(core, _Recorder)
        core.op = order
        step(values, core)

    return told


class _Recorder(Core):
    """A core that keeps what it did."""

    __slots__ = ("_arrived", "_done", "_flagged", "_free", "_worked", "events", "flows", "op")

    def __init__(self, program: int, arguments: int) -> None:
        super().__init__(program, arguments)
        self.events: list[Event] = []
        self.flows: list[Flow] = []
        self.op = 0
        self._free, self._done, self._worked = ([-1] * len(PIPES) for _ in range(3))  # by which event each was decided
        self._flagged: dict[tuple[int, int, int], deque[tuple[int, int]]] = {}
        self._arrived: list[list[tuple[int, int]]] = [[] for _ in PIPES]

    def occupy(self, pipe: int, cycles: float, latency: float) -> None:
        cause = self._free[S] if self.free[S] > self.free[pipe] else self._free[pipe]
        start = max(self.free[S], self.free[pipe])
        super().occupy(pipe, cycles, latency)
        done = start + cycles + latency
        number = self._work(Event(pipe, self.op, start, self.free[pipe], done, cause, True))
        if self.done[pipe] == done:
            self._done[pipe] = number

    def scalar(self, cycles: float) -> None:
        start = self.free[S]
        super().scalar(cycles)
        if cycles:
            self._work(Event(S, self.op, start, self.free[S], self.free[S], self._free[S], True))

    def barrier(self, pipe: int | None, cycles: float) -> None:
        if pipe is None:
            waited = [*zip(self.free, self._free, strict=True), *zip(self.done, self._done, strict=True)]
        else:
            waited = self._state(pipe)
        latest, cause = max(waited)
        super().barrier(pipe, cycles)
        at = S if pipe is None else pipe
        number = self._add(Event(at, self.op, latest, self.free[at], self.free[at], cause, False))
        for held in range(len(PIPES)) if pipe is None else [pipe]:
            self._free[held] = number

    def set_flag(self, source: int, target: int, event: int) -> None:
        super().set_flag(source, target, event)
        _, cause = max(self._state(source))
        self._flagged.setdefault((source, target, event), deque()).append((cause, self._worked[source]))

    def wait_flag(self, source: int, target: int, event: int, cycles: float) -> None:
        before = self.free[target]
        super().wait_flag(source, target, event, cycles)
        cause, worked = self._flagged[source, target, event].popleft()
        if worked >= 0:
            self._arrived[target].append((worked, event))
        if self.free[target] > before:
            after = self.free[target]
            self._free[target] = self._add(Event(target, self.op, after - cycles, after, after, cause, False))

    def _state(self, pipe: int) -> list[tuple[float, int]]:
        """When a pipe is idle and all it did is done, and the events that decide so."""
        free, done = (self.free[pipe], self._free[pipe]), (self.done[pipe], self._done[pipe])
        return [free, done, (self.free[S], self._free[S])]

    def _work(self, event: Event) -> int:
        number = self._add(event)
        self._free[event.pipe] = self._worked[event.pipe] = number
        self.flows += [Flow(source, number, flag) for source, flag in self._arrived[event.pipe]]
        self._arrived[event.pipe].clear()
        return number

    def _add(self, event: Event) -> int:
        self.events.append(event)
        return len(self.events) - 1
