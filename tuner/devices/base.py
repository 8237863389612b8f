"""The device's contract: what compiles, times and checks configs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tilewise.db.records import Clock, Scope, shape_text
from tilewise.errors import BadDimension
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.measure.outcome import Outcome, Verdict

__all__ = ["Device", "DeviceRow"]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One line of `tilewise devices`."""

    id: str
    name: str
    clock: Clock
    cores: int | None
    available: bool
    unavailable_reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Absent means unknown; `why_not` is there only for a device that is not available."""
        body = {"id": self.id, "name": self.name, "clock": str(self.clock), "cores": self.cores}
        body |= {"available": self.available, "why_not": self.unavailable_reason or None}
        return {name: value for name, value in body.items() if value is not None}


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

    def scope(self, spec: KernelSpec, problem: Problem) -> Scope:
        """The scope under which this device's trials of the problem are stored."""
        target = self.target
        return Scope(problem, source_hash(spec), target.name, self.clock, self.toolchain, target.cores)

    def check_memory(self, spec: KernelSpec, problem: Problem) -> None:
        """Raises `BadDimension` where the problem's buffers do not fit the device's memory."""
        needed = sum(buffer.bytes for buffer in spec.buffers(problem).values())
        if needed > self.memory_bytes():
            free = self.memory_bytes() / 2**30
            wanted = f"{shape_text(problem.shape)} needs {needed / 2**30:.1f} GiB of buffers"
            raise BadDimension(f"{wanted}; {self.target.name} takes {free:.0f} GiB")

    def floor_us(self, spec: KernelSpec, problem: Problem) -> float | None:
        """The time below which memory alone allows no kernel: its least bytes at the device's rate. None if unknown."""
        return None

    def race(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int) -> Sequence[Outcome]:
        """Time each config once a round, in turns: an outcome a config, a correct one with all of its `times_us` in the
        order of the rounds. Only of a device that is `noisy`."""
        raise NotImplementedError(f"{self.id} has no times that vary")

    def subject(self, spec: KernelSpec, problem: Problem) -> tuple[KernelSpec, Problem, Target]:
        """What the prior is of: the kernel and the problem on this device, or what a record says that it is of."""
        return spec, problem, self.target

    def predict_us(
        self, spec: KernelSpec, problem: Problem, configs: Sequence[Config]
    ) -> Sequence[float | None] | None:
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
