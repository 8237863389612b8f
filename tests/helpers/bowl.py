"""A kernel whose time is a formula, and the device that reports it, for tests of searches.

Run as a script it tunes: `python bowl.py DATABASE_URL LOG M SECONDS_A_CONFIG TRIALS`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewise.db.records import Clock, Status
from tilewise.kernels.spec import Axis, Buffer, Config, Constraint, KernelSpec, Parameter, Problem, Target, Tiling
from tilewise.tuner.devices.base import Device
from tilewise.tuner.measure.adaptive_timing import time_adaptively
from tilewise.tuner.measure.outcome import Outcome, Timing, Verdict

TARGET = Target("ascend", "Bowl", 8, 2**16, 32, 65535)
DEFAULT = {"TILE": 1, "WIDTH": 8, "fast": False}
BEST = {"TILE": 5, "WIDTH": 64, "fast": True}


def bowl(x_ptr: Any, TILE: Any, WIDTH: Any) -> None:  # noqa: N803
    """Give the spec a source to hash; never launched."""


def time_us(config: Config) -> float:
    """Return the time of a config: 10 us at BEST, more with every step away from it."""
    away = abs(int(config["TILE"]) - 5) + abs(math.log2(int(config["WIDTH"])) - 6)
    return 10.0 + 3 * away + (0 if config["fast"] else 2)


SPEC = KernelSpec(
    name="bowl",
    summary="nothing, in a time that is a formula",
    function=bowl,
    dims=("M",),
    dtypes=("float32", "float16"),
    parameters=(
        Parameter("TILE", lambda problem, target: list(range(1, 11))),
        Parameter("WIDTH", lambda problem, target: [8, 16, 32, 64, 128, 256]),
        Parameter("fast", lambda problem, target: [True, False], role="option"),
    ),
    constraints=(
        Constraint("TILE * WIDTH <= 1024", lambda c, problem, target: int(c["TILE"]) * int(c["WIDTH"]) <= 1024),
    ),
    buffers=lambda problem: {"x_ptr": Buffer((problem.dims["M"],), problem.dtype, "out")},
    scalars=lambda problem: {},
    grid=lambda config, problem: (-(-problem.dims["M"] // int(config["TILE"])),),
    tiling=lambda config, problem: Tiling(
        (
            Axis("M", problem.dims["M"], int(config["TILE"]), int(config["TILE"])),
            Axis("N", 512, 512, int(config["WIDTH"])),
        ),
        streamed_bytes=int(config["TILE"]) * int(config["WIDTH"]) * 4,
        resident_bytes=0,
    ),
    reference=lambda inputs: {},
    flops=lambda problem: problem.dims["M"],
    default=lambda problem, target: dict(DEFAULT),
    origin="bowl",
)


class FormulaDevice(Device):
    """A device that reports `time_of(config)`: microseconds, or a `Status` for a config that fails.

    `wrong` configs disagree with the reference. `evaluated` and `verified` list the requested configs, in order.
    """

    id, clock, target, toolchain = "formula", Clock.MODELLED, TARGET, "formula 1"

    def __init__(
        self,
        time_of: Callable[[Config], float | Status] = time_us,
        *,
        wrong: Callable[[Config], bool] = lambda config: False,
        batch: int = 4,
    ) -> None:
        self._time_of, self._wrong, self.batch = time_of, wrong, batch
        self.evaluated: list[Config] = []
        self.verified: list[Config] = []
        self.closed = False

    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        for config in configs:
            self.evaluated.append(dict(config))
            time_or_failure = self._time_of(config)
            if isinstance(time_or_failure, Status):
                yield Outcome(time_or_failure, f"it is {time_or_failure}")
            else:
                yield Outcome(Status.CORRECT, timing=Timing(time_or_failure))

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        self.verified.append(dict(config))
        wrong = self._wrong(config)
        return Verdict(not wrong, 1.0 if wrong else 0.0, 0.1, "x_ptr: off by 1.0" if wrong else "")

    def memory_bytes(self) -> int:
        return 2**20

    def close(self) -> None:
        self.closed = True


class NoisyDevice(FormulaDevice):
    """A device whose times have noise around `time_of`, measured as on a real device.

    `samples` counts runs; `races` lists the configs timed in turns, call by call.
    """

    id, clock, noisy, toolchain = "noisy", Clock.MEASURED, True, "noise 1"

    def __init__(self, noise: Any, time_of: Callable[[Config], float | Status] = time_us, **options: Any) -> None:
        super().__init__(time_of, **options)
        self.noise, self.samples = noise, 0
        self.races: list[list[Config]] = []

    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        for outcome in super().evaluate(spec, problem, configs):
            if outcome.timing is None:
                yield outcome
            else:
                true_us = outcome.timing.time_us
                timing = time_adaptively(lambda count, us=true_us: self._times(us, count), to_beat_us=to_beat_us())
                yield Outcome(Status.CORRECT, timing=dataclasses.replace(timing, method="noise", l2="cold"))

    def race(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int) -> list[Outcome]:
        self.races.append([dict(config) for config in configs])
        found: list[list[float]] = [[] for _ in configs]
        for _ in range(rounds):
            for config, times in zip(configs, found, strict=True):
                true_us = self._time_of(config)
                times += [] if isinstance(true_us, Status) else self._times(true_us, 1)
        return [
            Outcome(Status.CORRECT, timing=Timing(times[0], samples=rounds, times_us=tuple(times)))
            if times
            else Outcome(Status.RUNTIME, "it fails in the race")
            for times in found
        ]

    def _times(self, true_us: float, count: int) -> list[float]:
        self.samples += count
        return list(self.noise.times(true_us, count))


def main(url: str, log: str, m: str, pause: str, trials: str) -> None:
    from tilewise.db.sql.sql_store import open_store
    from tilewise.tuner.tuning.loop import Budget, Tuning

    with Path(log).open("a") as lines, open_store(url) as store:

        def slowly(config: Config) -> float:
            lines.write(json.dumps(dict(config)) + "\n")
            lines.flush()
            time.sleep(float(pause))
            return time_us(config)

        problem = Problem("bowl", {"M": int(m)}, "float32")
        Tuning(SPEC, problem, FormulaDevice(slowly), store, budget=Budget(int(trials)), search="random").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
