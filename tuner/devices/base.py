"""The device contract: an object that compiles, times and checks configs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import Any, Self

from tilewise.db.records import Clock, Scope, Trial, shape_text
from tilewise.errors import BadDimension
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.measure.outcome import Outcome, Verdict

__all__ = ["Device", "DeviceRow"]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One row of `tilewise devices`."""

    id: str
    name: str
    clock: Clock
    cores: int | None
    available: bool
    unavailable_reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON. An absent key means unknown; only an unavailable device has `why_not`."""
        body = {"id": self.id, "name": self.name, "clock": str(self.clock), "cores": self.cores}
        body |= {"available": self.available, "why_not": self.unavailable_reason or None}
        return {name: value for name, value in body.items() if value is not None}


class Device(ABC):
    """An object that runs configs of any `KernelSpec`.

    `id` is the name that users type (`model:Ascend910B4`, `cuda`); results are stored and looked up under
    `target.name`. `toolchain` fingerprints everything that can change a time while the config stays the same. `batch`
    is the number of configs worth passing to `evaluate` at once. It is a constant of the device class, so that a search
    with the same seed takes the same course on every machine. A device that `draws_ahead` is given a batch while it
    works on the one before. The times of a `noisy` device vary from run to run; a model or a recording would only
    repeat its times. `settle_seconds` is the time under load after which a device runs at the clock that it keeps:
    before, power and heat have not reached their limits, and what needs most power looks faster than it will be.
    `notes` lists what is degraded on this machine, one line each. `serial` tells a chip from all others, on any host;
    it is empty if that is not known. `host` is the name of the chip's host; it is empty for this one.
    `measures_energy`: outcomes have the metric `energy_uj` if the spec needs it.
    """

    id: str
    clock: Clock
    target: Target
    toolchain: str
    batch: int
    draws_ahead = False
    noisy = False
    settle_seconds = 0.0
    notes: tuple[str, ...] = ()
    serial = ""
    host = ""
    measures_energy = False

    @abstractmethod
    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        """Yield one outcome per config, in order, each as soon as it is known.

        A failed config yields an outcome, never an exception; `Unavailable` means that the device itself is lost.
        `to_beat_us` is called before each config and returns the best time so far. A noisy device may drop a config
        that is clearly slower than that after a few repetitions.
        """

    def evaluate_batches(
        self,
        spec: KernelSpec,
        problem: Problem,
        batches: Iterator[Sequence[Config]],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Sequence[Outcome]]:
        """Yield the outcomes of all batches, in order, those that are known at the same time together.

        A batch is drawn when all outcomes before it were handed out. If the device `draws_ahead`, it is drawn when half
        of those of the last batch were, so that the device has work while the search chooses.
        """
        timed = (self.evaluate(spec, problem, configs, to_beat_us=to_beat_us) for configs in batches)
        return zip(chain.from_iterable(timed))

    @abstractmethod
    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        """Run the config on random data with poisoned outputs and compare with the float64 reference."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Return the bytes of global memory that a problem's buffers may fill."""

    def scope(self, spec: KernelSpec, problem: Problem) -> Scope:
        """Return the scope under which this device's trials of the problem are stored."""
        target = self.target
        return Scope(problem, source_hash(spec), target.name, self.clock, self.toolchain, target.cores)

    def check_memory(self, spec: KernelSpec, problem: Problem) -> None:
        """Raise `BadDimension` if the problem's buffers do not fit in the device's memory."""
        needed = sum(buffer.span_bytes for buffer in spec.buffers(problem).values())
        if needed > self.memory_bytes():
            free = self.memory_bytes() / 2**30
            wanted = f"{shape_text(problem.shape)} needs {needed / 2**30:.1f} GiB of buffers"
            raise BadDimension(f"{wanted}; {self.target.name} allows {free:.0f} GiB")

    def floor_us(self, spec: KernelSpec, problem: Problem) -> float | None:
        """Return the least time that memory allows a kernel: its least bytes at the device's rate. None if unknown."""
        return None

    def race(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int) -> Sequence[Outcome]:
        """Time each config once per round, in turns, and return one outcome per config.

        A correct outcome has all of its `times_us`, in the order of the rounds. Only `noisy` devices implement this.
        """
        raise NotImplementedError(f"{self.id} does not time configs in turns: its times do not vary")

    def subject(self, spec: KernelSpec, problem: Problem) -> tuple[KernelSpec, Problem, Target]:
        """Return the kernel, problem and target that the prior models: those given, or those that a recording names."""
        return spec, problem, self.target

    def predict_us(
        self, spec: KernelSpec, problem: Problem, configs: Sequence[Config]
    ) -> Sequence[float | None] | None:
        """Return the time that a model of this device predicts for each config, in microseconds, without running any.

        A config that is predicted to fail gets None. The whole result is None if the device has no such model.
        """
        return None

    def compare_with(self, problem: Problem, trials: Sequence[Trial]) -> None:
        """Make this problem's times comparable with those of stored trials, if another chip timed any. Optional."""
        return

    def warm_up(self) -> None:
        """Start whatever the first `evaluate` and `verify` would wait for. Optional; returns at once."""
        return

    def close(self) -> None:
        """Release the device's processes and memory. It cannot be used afterwards."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
