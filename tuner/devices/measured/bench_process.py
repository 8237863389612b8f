"""The bench process of a measured device: the tensors, the launches and the clock.

It answers the requests below, one at a time, through `call`. If a config makes it fault, hang or grow, the tuning
process notices and replaces it. Benchmarks that also time other things use `Bench` without a process of its own.
"""

from __future__ import annotations

import errno
import functools
import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from tilewise.db.records import ENERGY, METRICS, Status
from tilewise.errors import BadSpec
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.measured.accelerator import Description, Failure, Job, Runtime
from tilewise.tuner.measure.adaptive_timing import time_adaptively
from tilewise.tuner.measure.comparison import disagreement
from tilewise.tuner.measure.draws import DRAWS
from tilewise.tuner.measure.drift import DRIFT, Reference
from tilewise.tuner.measure.outcome import Outcome, Timing, Verdict
from tilewise.tuner.measure.verify import Arguments, check_outputs, stand_ins, verify

__all__ = ["ENTRY", "Bench", "Reply", "Request", "call"]

ENTRY = "tilewise.tuner.devices.measured.bench_process:call"

Request = Literal["describe", "bytes_per_us", "prepare", "measure", "race", "verify"]

Answer = TypeVar("Answer", bound=Outcome | Verdict | list[list[float]])

SECONDS = 1.0
"""Seconds of timing one config after which no further look is taken; kernels of many milliseconds get there."""

PAUSES = (0.1, 0.5, 2.0)
"""Seconds to wait for the device to recover, each followed by timing the config again."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[Answer]):
    """The answer about one config. After a `lost` reply the process can do nothing more."""

    answer: Answer
    lost: bool = False


def call(runtime: Sequence[Any], request: Request, *arguments: Any) -> Any:
    """Answer one request. `runtime` says how to open the accelerator: `"package.module:function"` and its arguments.

    Requests about a config name the kernel by the location of its spec. Raises only `BadSpec` and `Unavailable`.
    """
    bench = _bench(*runtime)
    if request in ("describe", "bytes_per_us"):
        return getattr(bench, request)()
    origin, problem, *rest = arguments
    return getattr(bench, request)(_spec(origin), problem, *rest)


@functools.cache
def _bench(runtime: str, *arguments: Any) -> Bench:
    module, _, name = runtime.partition(":")
    return Bench(getattr(importlib.import_module(module), name)(*arguments))


_spec = functools.cache(registry.load)


class Bench:
    """An accelerator and the tensors of one problem on it; only the last problem's tensors are kept."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._held: tuple[KernelSpec, Problem, Arguments] | None = None
        self._reference: Reference | None = None

    def describe(self) -> Description:
        return self.runtime.describe()

    def bytes_per_us(self) -> float | None:
        return self.runtime.bytes_per_us()

    def prepare(self, spec: KernelSpec, problem: Problem) -> None:
        """Draw the inputs and compute the reference, which is slow on some devices. Raises `BadSpec`."""
        self.runtime.check(spec)
        self.arguments(spec, problem).expected()
        self.runtime.synchronize()

    def measure(
        self, spec: KernelSpec, problem: Problem, config: Config, to_beat_us: float | None = None
    ) -> Reply[Outcome]:
        """Run the config once on poisoned outputs, time it, and check that it wrote only to its own tensors.

        Timing stops early if the config is clearly behind `to_beat_us`.
        """
        try:
            return Reply(self._measured(spec, problem, config, to_beat_us))
        except BadSpec:
            raise
        except Exception as error:
            failure = self._failure(error)
            return Reply(failure.outcome, failure.lost)

    def race(
        self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int
    ) -> Reply[list[list[float]]]:
        """Return microseconds by config and round, each config timed once per round, in turns.

        Empty if one of them fails; the caller finds out which by trying them one by one.
        """
        try:
            jobs = [self.job(spec, problem, config) for config in configs]
            times = self.runtime.timer.rounds_us(jobs, rounds, self.runtime.warm)
            self.runtime.synchronize()
            return Reply(times)
        except Exception as error:
            return Reply([], self._failure(error).lost)

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Reply[Verdict]:
        """Compare with the float64 reference on every draw of the inputs."""
        try:
            arguments = self.arguments(spec, problem)
            run = self.runtime.launcher(spec, problem, config, arguments.bind(config))
            return Reply(verify(spec, problem, config, arguments, run=run, draws=DRAWS))
        except Exception as error:
            failure = self._failure(error)
            outcome = failure.outcome
            return Reply(disagreement(f"the launch failed: {outcome.reason}", status=outcome.status), failure.lost)

    def arguments(self, spec: KernelSpec, problem: Problem) -> Arguments:
        """Return the problem's tensors, made on first use."""
        if self._held is None or self._held[0] != spec or self._held[1] != problem:
            self._held = None  # free the old ones first
            place, reference = self.runtime.place, self.runtime.reference_place
            run = functools.partial(self._run_default, spec)
            made = Arguments(spec, problem, device=place, reference_device=reference, run_default=run)
            self._held = (spec, problem, made)
        return self._held[2]

    def _run_default(self, spec: KernelSpec, problem: Problem, arguments: Arguments) -> None:
        """Launch the default config, the stand-in for a reference; if it does not compile, the first of some others
        that does."""
        failure: Exception | None = None
        for config in stand_ins(spec, problem, self.runtime.describe().target):
            try:
                self.runtime.launcher(spec, problem, config, arguments.bind(config))()
            except Exception as error:  # a fault of the device fails every launch after it too
                failure = failure or error
                continue
            self.runtime.synchronize()
            return
        assert failure is not None, "there is always a default"
        raise failure

    def job(self, spec: KernelSpec, problem: Problem, config: Config) -> Job:
        arguments = self.arguments(spec, problem)
        run = self.runtime.launcher(spec, problem, config, arguments.bind(config))
        before = arguments.resetter() if arguments.needs_reset else None
        return Job(run, self.runtime.kernel_names(spec, problem, config), before)

    def _measured(self, spec: KernelSpec, problem: Problem, config: Config, to_beat_us: float | None) -> Outcome:
        arguments = self.arguments(spec, problem)
        job = self.job(spec, problem, config)
        arguments.restore()
        arguments.poison()
        kernels = job.run()
        self.runtime.synchronize()
        if self.runtime.place == self.runtime.reference_place:  # otherwise the comparison costs more than the timing
            verdict = check_outputs(arguments)
            if not verdict.agreed:
                return Outcome(verdict.status, verdict.reason)
        timing, facts = self._timed(job, to_beat_us)
        if spec.needs_energy and (energy_uj := self.runtime.energy_uj(job, timing.time_us)) is not None:
            facts[METRICS] = {ENERGY: energy_uj}
        self.runtime.synchronize()
        if (damage := arguments.damage()) is not None:
            return Outcome(Status.CORRECTNESS, damage)
        return Outcome(Status.CORRECT, timing=timing, facts={**self.runtime.kernel_facts(kernels), **facts})

    def _timed(self, job: Job, to_beat_us: float | None) -> tuple[Timing, dict[str, Any]]:
        """Time the job, again if the reference drifts meanwhile; return the timing and facts about the attempts."""
        reference = self._drift_reference()
        began, worst = time.monotonic(), None
        for repeats in range(len(PAUSES) + 1):
            timing = time_adaptively(self._sampler(job), to_beat_us=to_beat_us, seconds=SECONDS)
            ratio = reference.ratio() if reference else None
            if ratio is None:
                break
            worst = worst or {"ratio": round(ratio, 3), **self._state()}
            if repeats < len(PAUSES):
                time.sleep(PAUSES[repeats])
        facts: dict[str, Any] = {"timing_s": round(time.monotonic() - began, 4), **self._state()}
        if worst is not None:
            facts[DRIFT] = {**worst, "repeats": repeats, "lasts": ratio is not None}
        if reference is not None and ratio is not None:
            reference.renew()
        return replace(timing, method=self.runtime.timer.name, l2="warm" if self.runtime.warm else "cold"), facts

    def _sampler(self, job: Job) -> Callable[[int], list[float]]:
        timer, warm = self.runtime.timer, self.runtime.warm
        return functools.partial(timer.samples_us, job.run, job.kernels, before=job.before, warm=warm)

    def _drift_reference(self) -> Reference | None:
        """Return the reference that shows device changes; it is first timed with the first config."""
        if self._reference is None and (job := self.runtime.reference()) is not None:
            self._reference = Reference(self._sampler(job))
        return self._reference

    def _state(self) -> dict[str, Any]:
        """Return the device's reported state, without what it does not report."""
        return {name: value for name, value in asdict(self.runtime.state()).items() if value}

    def _failure(self, error: Exception) -> Failure:
        """Interpret the error, and check whether the device still works after it."""
        failure = self.runtime.failure(error)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return Failure(failure.outcome, lost=True)  # the files that fill the disk go with the process's folder
        if not failure.lost:
            try:
                self.runtime.synchronize()
            except Exception as second:
                return Failure(self.runtime.failure(second).outcome, lost=True)
        return failure
