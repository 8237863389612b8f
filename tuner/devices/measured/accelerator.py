"""The interface between an accelerator's own software and the code that all measured devices share.

A measured device has three parts in two processes. In the tuning process, `measured.MeasuredDevice` compiles ahead,
hands configs over and decides what a fault means; it never touches the accelerator. In the bench process,
`bench_process.Bench` holds the tensors, launches and times. It reaches the accelerator only through a `Runtime`:
CUDA's, the NPU's, or in tests that of a host that has neither. The bench process may die at any moment and is then
replaced.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, Tensors
from tilewise.tuner.measure.outcome import Outcome

__all__ = ["Description", "Failure", "Job", "Run", "Runtime", "State", "Timer", "turns"]

Run = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Description:
    """A device's properties, read once from the bench process and kept by the tuning process.

    `toolchain` fingerprints everything that can change a time, including the timing method. `memory_bytes` is the
    memory that a problem's buffers may fill, with room left for the reference. `notes` lists what is degraded, one
    line each. `energy`: the runtime measures the energy of a launch.
    """

    target: Target
    toolchain: str
    memory_bytes: int
    notes: tuple[str, ...] = ()
    energy: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """The outcome that an exception gives the current config; `lost` if this process has lost the accelerator."""

    outcome: Outcome
    lost: bool


@dataclass(frozen=True, slots=True)
class State:
    """The accelerator's clock and throttling; None and empty where they cannot be read."""

    clock_mhz: float | None = None
    throttled: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """Timed work: `run` launches the functions named `kernels` in order, and `before` is called before each run,
    outside the timed region."""

    run: Run
    kernels: Sequence[str]
    before: Run | None = None


def turns(jobs: int, rounds: int) -> list[list[int]]:
    """Return the order of the jobs in each round, shuffled per round but identical on every call.

    Every second run may be slower, say; in a fixed order that would look like a difference between jobs.
    """
    generator = random.Random(0)
    return [generator.sample(range(jobs), jobs) for _ in range(rounds)]


class Timer(ABC):
    """A method of timing work on the device. `name` is stored with the times, and methods are never mixed."""

    name: str

    @abstractmethod
    def samples_us(
        self, run: Run, kernels: Sequence[str], count: int, before: Run | None = None, warm: bool = False
    ) -> list[float]:
        """Return the device microseconds of each of `count` runs.

        A run launches the functions named `kernels` in order. `before` is called before each run, outside the timed
        region. Caches are cold at the start of every run unless `warm`. Raises `RuntimeError` if the times cannot be
        taken.
        """

    def rounds_us(self, jobs: Sequence[Job], count: int, warm: bool = False) -> list[list[float]]:
        """Return device microseconds by job and round. Each of `count` rounds runs every job once, ordered by `turns`.

        A timer whose measurements are slow to start should override this to take all rounds at once.
        """
        times: list[list[float]] = [[] for _ in jobs]
        for order in turns(len(jobs), count):
            for index in order:
                job = jobs[index]
                times[index] += self.samples_us(job.run, job.kernels, 1, job.before, warm)
        return times


class Runtime(ABC):
    """An accelerator opened in this process.

    `place` and `reference_place` are torch devices: the first holds the kernel's tensors, the second computes the
    float64 reference. With `warm`, caches stay as the last run left them.
    """

    place: str
    reference_place: str
    timer: Timer
    warm: bool = False

    @abstractmethod
    def describe(self) -> Description: ...

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the device, and raise any error that has occurred on it since the last wait."""

    @abstractmethod
    def failure(self, error: Exception) -> Failure:
        """Interpret an exception from compiling, launching or `synchronize`."""

    def check(self, spec: KernelSpec) -> None:
        """Raise `BadSpec` if the spec cannot be launched with any config."""
        from tilewise.tuner.measure.launch import resolve_functions

        resolve_functions(spec)

    def launcher(
        self, spec: KernelSpec, problem: Problem, config: Config, tensors: Tensors
    ) -> Callable[[], Sequence[Any]]:
        """Return a function that makes the config's launches and returns the compiled kernels."""
        from tilewise.tuner.measure.launch import launcher

        return launcher(spec, problem, config, tensors)

    def kernel_names(self, spec: KernelSpec, problem: Problem, config: Config) -> list[str]:
        """Return the names of the functions that one run launches, in order."""
        from tilewise.tuner.measure.launch import resolve_function

        return [resolve_function(spec, step.function).__name__ for step in spec.plan(config, problem)]

    def kernel_facts(self, kernels: Sequence[Any]) -> Mapping[str, Any]:
        """Return the toolchain's facts about the launched kernels, as plain JSON values."""
        return {}

    def reference(self) -> Job | None:
        """Return a job that always takes the same time, about 20 us, so that its time shows when the device changes.

        Called once. None if this runtime has no such job.
        """
        return None

    def state(self) -> State:
        return State()

    def energy_uj(self, job: Job, time_us: float) -> float | None:
        """Measure the energy of one run among many, one after the other; None if this runtime cannot.

        `time_us` is about what one takes.
        """
        return None

    def bytes_per_us(self) -> float | None:
        """Measure the rate at which the device moves memory; None if this runtime does not measure it."""
        return None
