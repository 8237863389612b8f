"""A chip that a file describes: recorded times, with a planted speed, noise and duration of a trial.

It stands in for one chip of a fleet where there is none. Its file, `NAME.chip.json`, holds the fields of `Planted`.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewise.db.exchange.foreign.landscapes.t4 import Row, read_landscape
from tilewise.db.records import Clock, Status, canonical_json
from tilewise.errors import BadImport
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.measure.adaptive_timing import time_adaptively
from tilewise.tuner.measure.outcome import Outcome, Timing, Verdict
from tilewise.tuner.measure.robust_stats import quantile

__all__ = ["SUFFIX", "Planted", "RecordedChip"]

SUFFIX = ".chip.json"


@dataclass(frozen=True, slots=True)
class Planted:
    """The description of a chip: the `recording` that it replays for every shape, and what is planted.

    Chips of one `name` and `toolchain` have the same true times: the recorded ones, each varied by `variation` (a
    share, drawn from name, shape and config). This one takes `slowness` times as long, with `noise` (a share) in every
    run. A trial takes `seconds`.
    """

    recording: str
    name: str
    toolchain: str
    cores: int = 132
    slowness: float = 1.0
    noise: float = 0.0
    variation: float = 0.0
    seconds: float = 0.0

    @classmethod
    def read(cls, path: str | Path) -> Planted:
        """Raises `BadImport` if the file is not the description of a chip."""
        try:
            return cls(**json.loads(Path(path).read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise BadImport(f"{path} does not describe a chip: {error}") from error

    def true_us(self, row: Row, problem: Problem) -> float:
        """Return the time of a recorded config for a problem, without noise, on a chip without a planted slowness."""
        assert row.time_us is not None, "a correct row has a time"
        drawn = random.Random(f"{self.name} {canonical_json(problem.shape)} {canonical_json(dict(row.config))}")
        return row.time_us * math.exp(self.variation * drawn.gauss(0.0, 1.0))


class RecordedChip(Device):
    """A measured, noisy chip for all shapes of the kernel of a recording.

    A config that was not recorded is outside the constraints. The facts of an outcome name its `chip` and `process`.
    """

    batch, noisy, clock = 4, True, Clock.MEASURED

    def __init__(self, path: str | Path) -> None:
        self.id = f"replay:{path}"
        self.planted = Planted.read(path)
        self.toolchain = self.planted.toolchain
        self.target = known_target(self.planted.name, self.planted.cores)
        rows = read_landscape(self.planted.recording).rows
        self._rows = {canonical_json(dict(row.config)): row for row in rows}
        self._drawn = random.Random(Path(path).name)

    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        def timed(row: Row) -> Timing:
            return time_adaptively(self._runs(row, problem), to_beat_us=to_beat_us(), seconds=math.inf)

        for config in configs:
            time.sleep(self.planted.seconds)
            yield self._outcome(config, timed)

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        outcome = self._outcome(config, lambda row: Timing(self.planted.true_us(row, problem)))
        return Verdict(outcome.status is Status.CORRECT, 0.0, 0.0, outcome.reason)

    def race(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int) -> Sequence[Outcome]:
        def timed(row: Row) -> Timing:
            times = self._runs(row, problem)(rounds)
            return Timing(quantile(times, 0.5), samples=rounds, times_us=tuple(times))

        return [self._outcome(config, timed) for config in configs]

    def memory_bytes(self) -> int:
        return 2**37

    def _outcome(self, config: Config, timed: Callable[[Row], Timing]) -> Outcome:
        row = self._rows.get(canonical_json(dict(config)))
        facts = {"chip": self.id, "process": os.getpid()}
        if row is None:
            return Outcome(Status.CONSTRAINTS, f"{self.id} records no such config", facts=facts)
        if row.status is not Status.CORRECT:
            return Outcome(row.status, row.reason or f"recorded as {row.status}", facts=facts)
        return Outcome(Status.CORRECT, timing=timed(row), facts=facts)

    def _runs(self, row: Row, problem: Problem) -> Callable[[int], list[float]]:
        planted, drawn = self.planted, self._drawn
        here_us = planted.true_us(row, problem) * planted.slowness
        return lambda count: [here_us * (1 + drawn.gauss(0.0, planted.noise)) for _ in range(count)]
