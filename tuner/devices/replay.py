"""A recorded landscape as a device: every outcome is read from the file, so a search on it needs no hardware.

A config's outcome is the recorded one: its time, or how it failed. Nothing is run, so `verify` repeats the recorder's
own verdict, and a time counts as `measured` only if the file says so.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewise.db.exchange.foreign.landscapes.t4 import Landscape, Row, read_landscape
from tilewise.db.records import Clock, Shape, Status, canonical_json, shape_text
from tilewise.errors import BadImport, UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Parameter, Problem, Target, Tiling, Value
from tilewise.tuner.devices.base import Device
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.measure.adaptive_timing import time_adaptively
from tilewise.tuner.measure.outcome import Outcome, Timing, Verdict
from tilewise.tuner.measure.robust_stats import quantile
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import Space, domains

__all__ = ["ReplayDevice", "recorded"]

_NO_LIMIT = 2**63 - 1


def recorded() -> None:
    """Stand in for the recorded function, which the file does not contain; never launched."""


class ReplayDevice(Device):
    """A device that can evaluate only the `spec` and `problem` of its file.

    The problem has no dimensions, because a file holds a single problem. With `noise`, a config is timed as on real
    hardware, each run drawn from its raw repetitions: until its time is known or clearly behind, and in turns with
    others at the end. The draws depend only on `seed` and the config, so the order of evaluations does not matter.
    Without `noise`, a config's time is the recorded one (a mean or a median, whichever the recorder stored). `slowness`
    is planted: all times are multiplied by it.

    Raises `BadImport` if the file is not a landscape, or if `noise` is set and the file holds no repetitions.
    """

    batch = 4

    def __init__(self, path: str | Path, *, noise: bool = False, seed: int = 0, slowness: float = 1.0) -> None:
        self.id = f"replay:{path}"
        self.path = Path(path)
        self.landscape = read_landscape(path)
        self.notes = () if self.landscape.whole else ("the file was cut off after its last whole record",)
        by_values = {tuple(row.config[name] for name in self.landscape.parameters): row for row in self.landscape.rows}
        self.rows = list(by_values.values())  # the later row of a config recorded twice
        self.noisy, self._seed, self._races = noise, seed, 0
        self._slowness = slowness
        if noise and not any(row.samples_us for row in self.rows):
            raise BadImport(f"{path} holds no single repetitions to draw noise from; replay it without --noise")
        about = self.landscape.metadata
        self.clock = _clock(about)
        self.target = _target(about)
        self.toolchain = f"replay of {self.path.name} {_digest(self.path)}" + (f", noise {seed}" if noise else "")
        self.problem = Problem(_text(about, "kernel", "kernel_name") or self.path.name, {}, "recorded")
        self.spec = _spec(self.problem.kernel, self.landscape, self.space)

    @cached_property
    def space(self) -> Space:
        """Every recorded config, in the order of `rows`."""
        values = {name: _domain(self.landscape, name) for name in self.landscape.parameters}
        return Space(values, [row.config for row in self.rows])

    @cached_property
    def origin(self) -> tuple[KernelSpec, Problem] | None:
        """The project's own kernel and problem that were recorded.

        None if the file names none, or if the kernel has since changed its parameters or the kind of their values.
        """
        about = self.landscape.metadata
        if about.get("kernel") not in registry.names():
            return None
        spec = registry.load(about["kernel"])
        dims, dtype = about.get("dims"), about.get("dtype")
        try:
            problem = make_problem(spec, dims if isinstance(dims, dict) else {}, str(dtype))
        except UsageError:
            return None
        allowed = domains(spec, problem, self._recorded_on())
        if allowed.keys() != self.space.domains.keys():
            return None
        alike = (_are_like(values, allowed[name]) for name, values in self.space.domains.items())
        return (spec, problem) if all(alike) else None

    def subject(self, spec: KernelSpec, problem: Problem) -> tuple[KernelSpec, Problem, Target]:
        if self.origin is None:
            return super().subject(spec, problem)
        return *self.origin, self._recorded_on()

    def _recorded_on(self) -> Target:
        return known_target(self.target.name, self.target.cores)

    def asked(self, kernel: str, dims: Shape) -> tuple[KernelSpec, Problem]:
        """Return the spec and problem to tune when this kernel is requested with these dims, or with none.

        Raises `UsageError` if the file records another kernel or other dims.
        """
        name, recorded_dims = self.problem.kernel, self.landscape.metadata.get("dims")
        if kernel != name:
            raise UsageError(f"{self.id} records only {name}")
        if dims and dims != recorded_dims:
            unknown = "one shape, which it does not name"
            shape = shape_text(recorded_dims) if isinstance(recorded_dims, dict) else unknown
            raise UsageError(f"{self.id} records only {shape}; omit the shape")
        return self.spec, self.problem

    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        self._require(spec)
        for config in configs:
            yield self._outcome(config, lambda row: self._timed(row, to_beat_us()))

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        (outcome,) = self.evaluate(spec, problem, [config])
        return Verdict(outcome.status is Status.CORRECT, 0.0, 0.0, outcome.reason)

    def memory_bytes(self) -> int:
        return _NO_LIMIT

    def _require(self, spec: KernelSpec) -> None:
        if {p.name for p in spec.parameters} != set(self.space.domains):
            raise UsageError(f"{self.path} records {self.problem.kernel} and cannot run {spec.name}")

    def race(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int) -> Sequence[Outcome]:
        if not self.noisy:
            return super().race(spec, problem, configs, rounds)
        self._races += 1
        occasion = f"contest {self._races}"  # seeds the draws

        def timed(row: Row) -> Timing:
            times = self._sampler(row, f"{occasion}{self._planted}")(rounds)
            return Timing(quantile(times, 0.5), samples=rounds, times_us=tuple(times))

        return [self._outcome(config, timed) for config in configs]

    def _outcome(self, config: Config, timed: Callable[[Row], Timing]) -> Outcome:
        index = self.space.index(config)
        if index is None:
            return Outcome(Status.CONSTRAINTS, f"{self.path.name} records no such config")
        row = self.rows[index]
        if row.status is not Status.CORRECT:
            return Outcome(row.status, row.reason or f"recorded as {row.status}")
        facts = {"recorded_s": row.seconds} if row.seconds is not None else {}
        return Outcome(Status.CORRECT, timing=timed(row), facts=facts)

    def _timed(self, row: Row, to_beat_us: float | None) -> Timing:
        """Time the config anew if noisy; otherwise return its recorded time with the spread of its repetitions.

        The spread is widened to include a recorded mean that lies outside it.
        """
        if self.noisy:
            return time_adaptively(self._sampler(row, f"alone{self._planted}"), to_beat_us=to_beat_us, seconds=math.inf)
        time_us = _time_us(row) * self._slowness
        if self.clock is Clock.MODELLED or len(row.samples_us) < 2:
            return Timing(time_us)
        p20, p80 = (quantile(row.samples_us, share) * self._slowness for share in (0.2, 0.8))
        return Timing(time_us, min(p20, time_us), max(p80, time_us), len(row.samples_us))

    @property
    def _planted(self) -> str:
        """Text that tells the draws of a planted device from those of others."""
        return "" if self._slowness == 1.0 else f" {self._slowness}"

    def _sampler(self, row: Row, occasion: str) -> Callable[[int], list[float]]:
        """Return a sampler of the config's runs. Without repetitions every run takes the recorded time."""
        recorded = [time_us * self._slowness for time_us in row.samples_us or (_time_us(row),)]
        generator = random.Random(f"{self._seed} {occasion} {canonical_json(dict(row.config))}")
        return lambda count: generator.choices(recorded, k=count)


def _time_us(row: Row) -> float:
    assert row.time_us is not None, "a correct row has a time"
    return row.time_us


def _spec(name: str, landscape: Landscape, space: Space) -> KernelSpec:
    def parameter(name: str, values: Sequence[Value]) -> Parameter:
        return Parameter(name, lambda problem, target: values)

    return KernelSpec(
        name=name,
        summary="a recorded landscape",
        function="tilewise.tuner.devices.replay:recorded",
        dims=(),
        dtypes=(),
        parameters=tuple(parameter(name, values) for name, values in space.domains.items()),
        buffers=lambda problem: {},
        scalars=lambda problem: {},
        grid=lambda config, problem: (1,),
        tiling=lambda config, problem: Tiling((), 0, 0),
        reference=lambda inputs: {},
        flops=lambda problem: 0,
        default=lambda problem, target: {},
        configs=lambda problem, target: space.configs,
    )


def _domain(landscape: Landscape, name: str) -> tuple[Value, ...]:
    """Return the parameter's values: numbers in ascending order, anything else in order of first occurrence."""
    values = dict.fromkeys(row.config[name] for row in landscape.rows)
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return tuple(sorted(numbers)) if len(numbers) == len(values) else tuple(values)


def _are_like(values: Sequence[Value], allowed: Sequence[Value]) -> bool:
    """Return whether these could be values of a known parameter: of its types, no number below its smallest."""
    types, least = set(map(type, allowed)), min((v for v in allowed if not isinstance(v, str)), default=0)
    return all(type(value) in types and (isinstance(value, str) or value >= least) for value in values)


def _clock(about: Mapping[str, Any]) -> Clock:
    """Return the file's clock. Kernel Tuner's caches name the device that they were measured on instead."""
    name = about.get("clock", Clock.MEASURED if "device_name" in about else Clock.MODELLED)
    if name not in list(Clock):
        raise BadImport(f"the landscape's clock is {str(name)[:40]!r}; expected {' or '.join(Clock)}")
    return Clock(name)


def _target(about: Mapping[str, Any]) -> Target:
    """Return the recorded target. A limit that the file does not give is unbounded."""
    name = _text(about, "device", "device_name") or "a recorded device"
    cores = about.get("cores")
    cores = cores if isinstance(cores, int) and cores > 0 else 1
    return Target("ascend" if name.startswith("Ascend") else "nvidia", name, cores, _NO_LIMIT, 1, _NO_LIMIT)


def _text(about: Mapping[str, Any], *names: str) -> str:
    return next((about[name] for name in names if isinstance(about.get(name), str) and about[name]), "")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]
