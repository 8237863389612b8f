"""Breakdown of one config's modelled time: by pipe, along the critical path, by Triton source line, by buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tilewise.db.records import L2State
from tilewise.errors import Unavailable
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.ascend_model.clock.core import PIPES
from tilewise.tuner.devices.ascend_model.clock.machine import KernelTime, Machine, cores_for
from tilewise.tuner.devices.ascend_model.clock.recording import Event, Recording
from tilewise.tuner.devices.ascend_model.index_contents import IndexContents
from tilewise.tuner.devices.ascend_model.ir.source_lines import Place
from tilewise.tuner.devices.ascend_model.model_config import trust_of
from tilewise.tuner.devices.ascend_model.report.located_launch import LocatedLaunch, located_launches
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.hardware.ascend_parts import part
from tilewise.tuner.hardware.calibrated_costs import calibrated

__all__ = ["Analysis", "LaunchCourse", "LineTime", "Step", "analyse"]

_LEAST_STEP = 0.002
"""Share of a program's time from which a stretch of its critical path is a step of its own."""


@dataclass(frozen=True, slots=True)
class LaunchCourse:
    """One launch: its time, the recording of one program that represents all, and the source line of each operation.

    `cycle_us` is the time in the launch, over all its waves, that one cycle of that program represents. `clock_ghz` is
    the part's clock, for times within the program. `buffers` are bytes by name, in the order of `time.reads`.
    """

    name: str
    time: KernelTime
    recording: Recording
    places: Sequence[Place | None]
    buffers: Mapping[str, int]
    cycle_us: float
    clock_ghz: float

    def place(self, event: Event) -> Place | None:
        return self.places[event.op]


@dataclass(frozen=True, slots=True)
class LineTime:
    """A source line: each pipe's time on it and its time on the critical path, in microseconds of the whole config."""

    place: Place
    pipes_us: Mapping[str, float]
    path_us: float


@dataclass(frozen=True, slots=True)
class Step:
    """A stretch of the critical path on one pipe and source line, waiting included, in microseconds of the config."""

    pipe: str
    place: Place | None
    time_us: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """A config's launches in order. `between_us` are the times between which the real one lies."""

    launches: Sequence[LaunchCourse]
    between_us: tuple[float, float]

    @property
    def time_us(self) -> float:
        return sum(launch.time.time_us for launch in self.launches)

    def pipes(self) -> list[str]:
        """Return the pipes of the cores that the launches run on."""
        return [pipe for pipe in PIPES if any(pipe in launch.recording.time.busy for launch in self.launches)]

    def rows(self) -> dict[str, float]:
        """Return the whole time by component, in microseconds: each pipe's work on the critical path, `waiting` on it
        (for first bytes, start-up and flags, while no pipe does critical work), and the overhead outside programs."""
        rows = dict.fromkeys((*self.pipes(), "waiting"), 0.0)
        for launch in self.launches:
            for event, cycles in launch.recording.critical_path():
                work = event.end - event.start if event.work else 0.0
                rows[PIPES[event.pipe]] += work * launch.cycle_us
                rows["waiting"] += (cycles - work) * launch.cycle_us
            for name, time in launch.time.overhead_us.items():
                rows[name] = rows.get(name, 0.0) + time
        return rows

    def lines(self) -> list[LineTime]:
        """Return the lines that take time, the longest on the critical path first. Of cores that run side by side, the
        one whose pipe is busiest counts."""
        pipes: dict[Place, dict[str, float]] = {}
        none = dict.fromkeys(self.pipes(), 0.0)
        path: dict[Place, float] = {}
        for launch in self.launches:
            for (line, pipe), time in _busy(launch).items():
                pipes.setdefault(line, {**none})[pipe] += time
            for event, cycles in launch.recording.critical_path():
                if place := launch.place(event):
                    path[place] = path.get(place, 0.0) + cycles * launch.cycle_us
        found = [LineTime(place, pipes.get(place, none), path.get(place, 0.0)) for place in {**pipes, **path}]
        return sorted(found, key=lambda line: (-line.path_us, -max(line.pipes_us.values()), str(line.place)))

    def critical_path(self) -> list[Step]:
        """Return the steps from start to end of each launch's program; short stretches join the step before them."""
        steps: list[Step] = []
        for launch in self.launches:
            least = _LEAST_STEP * launch.recording.time.cycles
            for event, cycles in reversed(list(launch.recording.critical_path())):
                pipe, place = PIPES[event.pipe], launch.place(event)
                if steps and (cycles < least or (steps[-1].pipe, steps[-1].place) == (pipe, place)):
                    pipe, place = steps[-1].pipe, steps[-1].place
                    cycles += steps.pop().time_us / launch.cycle_us
                steps.append(Step(pipe, place, cycles * launch.cycle_us))
        return steps

    def traffic(self) -> dict[str, tuple[int, int]]:
        """Return the bytes read and written by buffer, over all launches."""
        moved: dict[str, tuple[int, int]] = {}
        for launch in self.launches:
            for name, read, written in zip(launch.buffers, launch.time.reads, launch.time.writes, strict=True):
                before = moved.get(name, (0, 0))
                moved[name] = (before[0] + read, before[1] + written)
        return moved


def _busy(launch: LaunchCourse) -> Mapping[tuple[Place, str], float]:
    """Return the microseconds of each line's work on each pipe."""
    by_core: dict[tuple[Place, str], list[float]] = {}
    for event in launch.recording.events:
        if event.work and (place := launch.place(event)):
            cores = by_core.setdefault((place, PIPES[event.pipe]), [0.0] * len(launch.recording.cores))
            cores[event.core] += (event.end - event.start) * launch.cycle_us
    return {key: max(cores) for key, cores in by_core.items()}


def analyse(
    spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path, *, l2: L2State = L2State.WARM
) -> Analysis:
    """Compile a feasible config again, with source lines, and record each launch.

    Raises `Unavailable` if it cannot be compiled or timed after all.
    """
    try:
        launches = list(located_launches(spec, problem, config, target, folder))
        courses = list(_launches(spec, problem, config, target, launches, l2))
    except ValueError as error:
        raise Unavailable(f"cannot record a timeline of {spec.name}: {error}") from error
    timed = KernelTime.in_turn([course.time for course in courses])
    trust = trust_of([launch.functions[0].function for launch in launches], timed)
    return Analysis(courses, (timed.time_us * trust["low"], timed.time_us * trust["high"]))


def _launches(
    spec: KernelSpec,
    problem: Problem,
    config: Config,
    target: Target,
    launches: Sequence[LocatedLaunch],
    l2: L2State,
) -> Iterator[LaunchCourse]:
    hardware, chosen = part(target.name), costs(instead=calibrated(target.name))
    for launch in launches:
        if not launch.functions:
            raise ValueError(launch.compiled.refusal)
    contents = IndexContents(spec, problem, config, [launch.functions[0].function for launch in launches])
    for index, launch in enumerate(launches):
        located = launch.functions[0]
        cores = cores_for(located.function, target)
        machine = Machine(
            hardware,
            cores,
            located.function,
            list(launch.buffers.values()),
            chosen,
            l2=l2,
            contents=partial(contents.of, index),
        )
        time, recording = machine.record(launch.scalars, launch.grid)
        running = time.time_us - sum(time.overhead_us.values())
        yield LaunchCourse(
            name=launch.name,
            time=time,
            recording=recording,
            places=located.places,
            buffers=launch.buffers,
            cycle_us=running / recording.time.cycles,
            clock_ghz=hardware.clock_ghz,
        )
