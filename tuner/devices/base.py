"""The device's contract: what compiles, times and checks configs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tilewise.db.records import Clock, Status
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target

__all__ = ["FAULTS", "LAST_LINES", "Device", "DeviceRow", "Outcome", "Timing", "Verdict"]

FAULTS = "faults"
"""Among an outcome's facts: how many processes the config has cost. One that cost two is not tried again."""

LAST_LINES = "last_lines"
"""Among an outcome's facts: the last that a process printed before it ended."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Device time of one launch, in microseconds, over `samples` repetitions (1 on a modelled clock).

    A modelled time has no spread, so its `p20_us`, `p80_us` and the ends of its interval are None. `times_us` are
    single repetitions to keep, in the order they were taken; of many, some evenly spread ones. The median lies between
    `low_us` and `high_us` with 95% confidence. `dropped` says that the config was clearly behind the best, so that its
    time is an estimate from few repetitions. `method` is how the time was taken, `l2` whether the cache was `cold` or
    `warm` before each run.
    """

    time_us: float
    p20_us: float | None = None
    p80_us: float | None = None
    samples: int = 1
    times_us: tuple[float, ...] = ()
    low_us: float | None = None
    high_us: float | None = None
    dropped: bool = False
    method: str = ""
    l2: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one config: a timing where `status` is `correct`, a one-line reason where it is not.

    `correct` here means compiled and timed; whether the output is right is `verify`'s to say. `facts` are plain JSON
    values: `effective_options`, `on_chip_bits` (`required`, `available`), `pipes_us`, `bound_by`, ...
    """

    status: Status
    reason: str = ""
    timing: Timing | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a config's output agreed with the float64 reference.

    `error` is the largest absolute deviation divided by the reference's RMS, `tolerance` what was allowed. `status` is
    what becomes of a trial that did not agree: the check itself may have failed, which says nothing of the values.
    """

    agreed: bool
    error: float
    tolerance: float
    reason: str = ""
    status: Status = Status.CORRECTNESS


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One line of `tilewise devices`."""

    id: str
    name: str
    clock: Clock
    cores: int | None
    available: bool
    why_not: str = ""


class Device(ABC):
    """Something that can run configs of any `KernelSpec`.

    `id` is what the user types (`model:Ascend910B4`, `cuda`); `target.name` is what results are stored and asked for
    under. `toolchain` fingerprints everything that can change a time while the config stays the same. `batch` is how
    many configs are worth handing to `evaluate` at once; it is a constant of the device class, so that a search with
    the same seed takes the same course on every machine. A `noisy` device's times vary from run to run; those of a
    model or of a record would only be repeated. `notes` say what is not at its best here, a line each.
    """

    id: str
    clock: Clock
    target: Target
    toolchain: str
    batch: int
    noisy = False
    notes: tuple[str, ...] = ()

    @abstractmethod
    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        """Yield one outcome a config, in order, each as soon as it is known.

        A config that fails is an outcome, never an exception; `Unavailable` means that the device itself is lost.
        `to_beat_us` is asked before each config for the best time so far: a device whose times vary may drop a config
        that is clearly behind it after a few repetitions.
        """

    @abstractmethod
    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        """Run the config on random data with poisoned outputs and compare with the float64 reference."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Global memory that a problem's buffers may fill."""

    def floor_us(self, spec: KernelSpec, problem: Problem) -> float | None:
        """The time below which memory alone allows no kernel: its least bytes at the device's rate. None if unknown."""
        return None

    def contest(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int) -> Sequence[Outcome]:
        """Time each config once a round, in turns: an outcome a config, a correct one with all of its `times_us` in the
        order of the rounds. Only of a device that is `noisy`."""
        raise NotImplementedError(f"{self.id} has no times that vary")

    def subject(self, spec: KernelSpec, problem: Problem) -> tuple[KernelSpec, Problem, Target]:
        """What the prior is of: the kernel and the problem on this device, or what a record says that it is of."""
        return spec, problem, self.target

    def foresee(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> Sequence[float | None] | None:
        """What a model of this device expects each config to take, in microseconds, without running any; None for one
        that it expects to fail, and None for all where there is no such model."""
        return None

    def warm_up(self) -> None:
        """Start what the first `evaluate` and `verify` would wait for; optional, and returns at once."""
        return

    def close(self) -> None:
        """Release what the device holds (processes, memory); it is unusable afterwards."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
