"""A program's full timeline: each pipe's operations and waits, and the chain of them that determined the end.

The cores of a mixed kernel have one timeline. A flag from one core to another leads the chain across.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewise.tuner.devices.ascend_model.clock.core import Core, Memory, ProgramTime, S, pipes_of
from tilewise.tuner.devices.ascend_model.clock.half_clock import CrossTimes, HalfClock, HalfCore
from tilewise.tuner.devices.ascend_model.clock.mixed_clock import MixedClock
from tilewise.tuner.devices.ascend_model.clock.program_clock import Contents, ProgramClock, Step
from tilewise.tuner.devices.ascend_model.ir.hivm import Block, Function
from tilewise.tuner.hardware.ascend_costs import Costs

__all__ = ["Event", "Flow", "Recording", "record"]


@dataclass(frozen=True, slots=True)
class Event:
    """A pipe's work or wait for one operation, in cycles from the program's start.

    From `start` to `end` the pipe was busy or, where `work` is False, held up by a flag or barrier; at `done` the
    result was ready. `op` is the operation's index in text order, `cause` the index of the event that determined
    `start` (-1: the program's start). Of a mixed kernel, `core` 0 is the cube core.
    """

    pipe: int
    op: int
    start: float
    end: float
    done: float
    cause: int
    work: bool
    core: int = 0


@dataclass(frozen=True, slots=True)
class Flow:
    """A flag: the indices of the work before it was set and of the work after the wait for it."""

    source: int
    target: int
    event: int


@dataclass(frozen=True, slots=True)
class Recording:
    """All events of one program in issue order; the last is its end, or that at index `last` of a mixed kernel's cores,
    of which some end earlier. `names` are the operations' names."""

    time: ProgramTime
    events: Sequence[Event]
    flows: Sequence[Flow]
    names: Sequence[str]
    last: int = -1

    @property
    def cores(self) -> Sequence[ProgramTime]:
        """The times of the cores that ran the program, by number."""
        return self.time.beside or (self.time,)

    @property
    def lanes(self) -> Sequence[tuple[int, str]]:
        """The pipes of all cores, each with its core's number."""
        return [(number, pipe) for number, core in enumerate(self.cores) for pipe in core.busy]

    def critical_path(self) -> Iterator[tuple[Event, float]]:
        """Yield the events that determined the program's end, from end to start, each with the cycles from its start
        to the next one's start. The cycles add up to the program's time."""
        index, until = self.last % len(self.events), self.time.cycles
        while index >= 0:
            event = self.events[index]
            yield event, until - event.start
            index, until = event.cause, event.start


def record(
    function: Function,
    costs: Costs,
    arguments: Sequence[int | float],
    program: int,
    memory: Memory,
    contents: Contents | None = None,
) -> Recording:
    """Time one program without skipping any iteration; see `ProgramClock.run`."""
    log = _Log()
    if function.vector:
        time = _RecordedMixed(function, costs, log, contents).run(arguments, program, memory)
    else:
        core = _Recorder(program, len(function.arguments), pipes_of(function), log)
        time = _Recorded(function, costs, contents).run(arguments, program, memory, core)
    last = max(range(len(log.events)), key=lambda index: (log.events[index].end, index))
    return Recording(time, log.events, log.flows, [op.name for op in function.walk()], last)


class _Recorded(ProgramClock):
    """A clock that tells its core which operation runs."""

    skipping = False

    def compile(self, block: Block) -> list[Step]:
        return [_marked(step, op.number - 1) for op in block.operations if (step := self._step(op)) is not None]


class _RecordedHalf(_Recorded, HalfClock):
    """The clock of one half of a mixed kernel."""


class _RecordedMixed(MixedClock):
    """The clock of a mixed kernel."""

    def __init__(self, function: Function, costs: Costs, log: _Log, contents: Contents | None) -> None:
        super().__init__(function, costs, contents)
        self._log = log
        self._sets: _CrossSets = {}

    def _clock(self, half: Function, costs: Costs, whole: Function, contents: Contents | None) -> HalfClock:
        return _RecordedHalf(half, costs, whole, contents)

    def _core(self, program: int, function: Function, number: int, cross: CrossTimes) -> HalfCore:
        return _HalfRecorder(program, self._arguments, function, number, cross, self._log, self._sets)


def _marked(step: Step, index: int) -> Step:
    def marked(values: list[object], core: Core) -> None:
        assert isinstance(core, _Recorder)
        core.op = index
        step(values, core)

    return marked


class _Log:
    """The events of all cores of a program, and the flags between them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.flows: list[Flow] = []


class _Recorder(Core):
    """A core that records its events."""

    def __init__(self, program: int, arguments: int, pipes: Sequence[str], log: _Log) -> None:
        super().__init__(program, arguments, pipes)
        self.begin(log, 0)

    def begin(self, log: _Log, core: int) -> None:
        """Record into a log, as the core of this number."""
        self.events, self.flows, self._core = log.events, log.flows, core
        self.op = 0
        self._free, self._done, self._worked = (
            [-1] * len(self.free) for _ in range(3)
        )  # the event that determined each
        self._flagged: dict[tuple[int, int, int], deque[tuple[int, int]]] = {}
        self._arrived: list[list[tuple[int, int]]] = [[] for _ in self.free]

    def occupy(self, pipe: int, cycles: float, latency: float) -> None:
        cause = self._free[S] if self.free[S] > self.free[pipe] else self._free[pipe]
        start = max(self.free[S], self.free[pipe])
        super().occupy(pipe, cycles, latency)
        done = start + cycles + latency
        index = self._work(Event(pipe, self.op, start, self.free[pipe], done, cause, True, self._core))
        if self.done[pipe] == done:
            self._done[pipe] = index

    def scalar(self, cycles: float) -> None:
        start = self.free[S]
        super().scalar(cycles)
        if cycles:
            self._work(Event(S, self.op, start, self.free[S], self.free[S], self._free[S], True, self._core))

    def barrier(self, pipe: int | None, cycles: float) -> None:
        if pipe is None:
            waited = [*zip(self.free, self._free, strict=True), *zip(self.done, self._done, strict=True)]
        else:
            waited = self._state(pipe)
        latest, cause = max(waited)
        super().barrier(pipe, cycles)
        at = S if pipe is None else pipe
        index = self._add(Event(at, self.op, latest, self.free[at], self.free[at], cause, False, self._core))
        for held in range(len(self.free)) if pipe is None else [pipe]:
            self._free[held] = index

    def set_flag(self, source: int, target: int, event: int) -> None:
        super().set_flag(source, target, event)
        _, cause = max(self._state(source))
        self._flagged.setdefault((source, target, event), deque()).append((cause, self._worked[source]))

    def wait_flag(self, source: int, target: int, event: int, cycles: float) -> None:
        before = self.free[target]
        super().wait_flag(source, target, event, cycles)
        cause, worked = self._flagged[source, target, event].popleft()
        self._waited(target, before, cycles, event, cause, worked)

    def _waited(self, pipe: int, before: float, cycles: float, flag: int, cause: int, worked: int) -> None:
        """Record the wait of a pipe that was free at `before`: `cause` let the flag be set, after the work `worked`."""
        if worked >= 0:
            self._arrived[pipe].append((worked, flag))
        if self.free[pipe] > before:
            after = self.free[pipe]
            self._free[pipe] = self._add(Event(pipe, self.op, after - cycles, after, after, cause, False, self._core))

    def _state(self, pipe: int) -> list[tuple[float, int]]:
        """Return the times that decide when a pipe is idle and its work done, each with the event behind it."""
        free, done = (self.free[pipe], self._free[pipe]), (self.done[pipe], self._done[pipe])
        return [free, done, (self.free[S], self._free[S])]

    def _work(self, event: Event) -> int:
        index = self._add(event)
        self._free[event.pipe] = self._worked[event.pipe] = index
        self.flows += [Flow(source, index, flag) for source, flag in self._arrived[event.pipe]]
        self._arrived[event.pipe].clear()
        return index

    def _add(self, event: Event) -> int:
        self.events.append(event)
        return len(self.events) - 1


_CrossSets = dict[tuple[int, int, int], deque[tuple[float, int, int]]]
"""Flags between cores that are set, by the cores that set and wait, and their number: the time, the event that let it
be set, and the work before."""


class _HalfRecorder(_Recorder, HalfCore):
    """One of the cores of a mixed program that records its events."""

    def __init__(  # the recorder's own would not know the flags between cores
        self,
        program: int,
        arguments: int,
        function: Function,
        number: int,
        cross: CrossTimes,
        log: _Log,
        sets: _CrossSets,
    ) -> None:
        HalfCore.__init__(self, program, arguments, function, number, cross)
        self.begin(log, number)
        self._sets = sets

    def set_cross_flag(self, pipe: int, flag: int) -> None:
        super().set_cross_flag(pipe, flag)
        time, cause = max(self._state(pipe))
        for target in self.cross.others(self.number):
            self._sets.setdefault((self.number, target, flag), deque()).append((time, cause, self._worked[pipe]))

    def wait_cross_flag(self, pipe: int, flag: int, cycles: float) -> None:
        before = self.free[pipe]
        super().wait_cross_flag(pipe, flag, cycles)
        made = [self._sets[source, self.number, flag].popleft() for source in self.cross.others(self.number)]
        _, cause, worked = max(made)
        self._waited(pipe, before, cycles, flag, cause, worked)
