"""What an accelerator's own software is to the code that all measured devices share.

Three parts make a measured device, and two processes. In the process that tunes, `measured.MeasuredDevice` compiles
ahead, hands configs over and decides what a fault means; it never touches the accelerator. In the bench process,
`bench_process.Bench` holds the tensors, launches and times; it knows the accelerator only by a `Runtime`: CUDA's, the
NPU's, or that of a host that has neither, in tests. The bench process may die at any moment and is then replaced.
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
    """What a device is: told once by the bench process, kept by the process that tunes.

    `toolchain` fingerprints all that can change a time, the timing method included; `memory_bytes` is what a
    problem's buffers may fill, with room left for the reference; `notes` say what is not at its best, a line each.
    """

    target: Target
    toolchain: str
    memory_bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """What an exception says of the config at hand, and whether the accelerator is `lost` to this process by it."""

    outcome: Outcome
    lost: bool


@dataclass(frozen=True, slots=True)
class State:
    """How the accelerator is doing; None and empty where it cannot be read."""

    clock_mhz: float | None = None
    throttled: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """What is timed: `run` launches the functions named `kernels`, one after the other; `before` is called before each
    run, outside the timed region."""

    run: Run
    kernels: Sequence[str]
    before: Run | None = None


def turns(jobs: int, rounds: int) -> list[list[int]]:
    """The order of the jobs in each round, drawn anew: times may differ between every second run, say, and in a fixed
    order that would be taken for a difference between jobs. The same every time."""
    drawn = random.Random(0)
    return [drawn.sample(range(jobs), jobs) for _ in range(rounds)]


class Timer(ABC):
    """One way to time what runs on the device; `name` is stored with the times, and ways are never mixed."""

    name: str

    @abstractmethod
    def samples_us(
        self, run: Run, kernels: Sequence[str], count: int, before: Run | None = None, warm: bool = False
    ) -> list[float]:
        """Device microseconds of each of `count` runs.

        A run launches the functions named `kernels`, one after the other. `before` is called before each run, outside
        the timed region. Caches are cold at the start of every run unless `warm`. Raises `RuntimeError` where the
        times cannot be taken.
        """

    def rounds_us(self, jobs: Sequence[Job], count: int, warm: bool = False) -> list[list[float]]:
        """By job, device microseconds in each of `count` rounds, in which each job runs once, in the order of `turns`.

        A timer for which it costs to begin does well to take all rounds at once.
        """
        times: list[list[float]] = [[] for _ in jobs]
        for order in turns(len(jobs), count):
            for number in order:
                job = jobs[number]
                times[number] += self.samples_us(job.run, job.kernels, 1, job.before, warm)
        return times


class Runtime(ABC):
    """One accelerator, opened in this process. `place` and `reference_place` are torch devices: where the kernel's
    tensors are, and where the float64 reference is computed. With `warm`, caches are left as the last run left them."""

    place: str
    reference_place: str
    timer: Timer
    warm: bool = False

    @abstractmethod
    def describe(self) -> Description: ...

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the device; raises what has gone wrong on it since."""

    @abstractmethod
    def failure(self, error: Exception) -> Failure:
        """What an exception from compiling, launching or `synchronize` means."""

    def check(self, spec: KernelSpec) -> None:
        """Raises `BadSpec` where the spec cannot be launched whatever the config."""
        from tilewise.tuner.measure.launch import resolve_functions

        resolve_functions(spec)

    def launcher(
        self, spec: KernelSpec, problem: Problem, config: Config, tensors: Tensors
    ) -> Callable[[], Sequence[Any]]:
        """A function that makes the config's launches and returns the compiled kernels."""
        from tilewise.tuner.measure.launch import launcher

        return launcher(spec, problem, config, tensors)

    def kernel_names(self, spec: KernelSpec, problem: Problem, config: Config) -> list[str]:
        """The functions that one run launches, in order."""
        from tilewise.tuner.measure.launch import resolve_function

        return [resolve_function(spec, step.function).__name__ for step in spec.plan(config, problem)]

    def kernel_facts(self, kernels: Sequence[Any]) -> Mapping[str, Any]:
        """What the toolchain says of what was launched, as plain JSON values."""
        return {}

    def reference(self) -> Job | None:
        """Something that always takes the same, some 20 us, by which one sees that the device has changed. It is asked
        for once. None where there is nothing of the kind."""
        return None

    def state(self) -> State:
        return State()

    def bytes_per_us(self) -> float | None:
        """The rate at which the device moves memory, measured now; None where nobody measures it."""
        return None
