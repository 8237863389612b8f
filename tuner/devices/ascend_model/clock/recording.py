"""A program's full timeline: each pipe's operations and waits, and the chain of them that determined the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewise.tuner.devices.ascend_model.clock.core import Core, Memory, ProgramTime, S, pipes_of
from tilewise.tuner.devices.ascend_model.clock.program_clock import Contents, ProgramClock, Step
from tilewise.tuner.devices.ascend_model.ir.hivm import Block, Function
from tilewise.tuner.hardware.ascend_costs import Costs

__all__ = ["Event", "Flow", "Recording", "record"]


@dataclass(frozen=True, slots=True)
class Event:
    """A pipe's work or wait for one operation, in cycles from the program's start.

    From `start` to `end` the pipe was busy or, where `work` is False, held up by a flag or barrier; at `done` the
    result was ready. `op` is the operation's index in text order, `cause` the index of the event that determined
    `start` (-1: the program's start).
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
    """A flag: the indices of the work before it was set and of the work after the wait for it."""

    source: int
    target: int
    event: int


@dataclass(frozen=True, slots=True)
class Recording:
    """All events of one program in issue order; the last is its end. `names` are the operations' names."""

    time: ProgramTime
    events: Sequence[Event]
    flows: Sequence[Flow]
    names: Sequence[str]

    def critical_path(self) -> Iterator[tuple[Event, float]]:
        """Yield the events that determined the program's end, from end to start, each with the cycles from its start
        to the next one's start. The cycles add up to the program's time."""
        index, until = len(self.events) - 1, self.time.cycles
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
    clock = _Recorded(function, costs, contents)
    core = _Recorder(program, len(function.arguments), pipes_of(function))
    time = clock.run(arguments, program, memory, core)
    return Recording(time, core.events, core.flows, [op.name for op in function.body.walk()])


class _Recorded(ProgramClock):
    """A program clock that tells its core which operation runs."""

    skipping = False

    def __init__(self, function: Function, costs: Costs, contents: Contents | None = None) -> None:
        self._indices = {id(op): index for index, op in enumerate(function.body.walk())}
        super().__init__(function, costs, contents)

    def _compile(self, block: Block) -> list[Step]:
        return [_marked(step, self._indices[id(op)]) for op in block.operations if (step := self._step(op)) is not None]


def _marked(step: Step, index: int) -> Step:
    def marked(values: list[object], core: Core) -> None:
        assert isinstance(core, _Recorder)
        core.op = index
        step(values, core)

    return marked


class _Recorder(Core):
    """A core that records its events."""

    __slots__ = ("_arrived", "_done", "_flagged", "_free", "_worked", "events", "flows", "op")

    def __init__(self, program: int, arguments: int, pipes: Sequence[str]) -> None:
        super().__init__(program, arguments, pipes)
        self.events: list[Event] = []
        self.flows: list[Flow] = []
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
        index = self._work(Event(pipe, self.op, start, self.free[pipe], done, cause, True))
        if self.done[pipe] == done:
            self._done[pipe] = index

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
        index = self._add(Event(at, self.op, latest, self.free[at], self.free[at], cause, False))
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
        if worked >= 0:
            self._arrived[target].append((worked, event))
        if self.free[target] > before:
            after = self.free[target]
            self._free[target] = self._add(Event(target, self.op, after - cycles, after, after, cause, False))

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
