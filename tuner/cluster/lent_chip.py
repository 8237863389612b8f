"""A chip that an actor lends to a tuning elsewhere in the cluster: what the actor does with it."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.db.records import Clock
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.base import Device
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.workers.fair_lock import FairLock

__all__ = ["Description", "LentChip"]

_ASKED = ("verify", "race", "floor_us", "predict_us", "scope")
"""The methods of a device that are asked for one answer."""


@dataclass(frozen=True, slots=True)
class Description:
    """The attributes of a device, as the process that borrows it needs them."""

    id: str
    host: str
    clock: Clock
    target: Target
    toolchain: str
    batch: int
    noisy: bool
    settle_seconds: float
    notes: tuple[str, ...]
    serial: str
    measures_energy: bool
    memory_bytes: int


class LentChip:
    """A device of this process, used by one other. Kernels are found by the place of their specs."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._using = FairLock()
        self._share = 0
        self._best_us = math.inf

    def describe(self) -> Description:
        device = self._device
        return Description(
            device.id,
            socket.gethostname(),
            device.clock,
            device.target,
            device.toolchain,
            device.batch,
            device.noisy,
            device.settle_seconds,
            tuple(device.notes),
            device.serial,
            device.measures_energy,
            device.memory_bytes(),
        )

    def evaluate(self, share: int, origin: str, problem: Problem, configs: Sequence[Config]) -> Iterator[Outcome]:
        """Yield the outcomes of a share of configs. A share with a larger number ends those before it.

        Between two configs, the chip answers what it is asked.
        """
        self._share = max(self._share, share)
        outcomes = self._device.evaluate(_spec(origin), problem, configs, to_beat_us=self._to_beat_us)
        while True:
            with self._using:
                outcome = next(outcomes, None) if share == self._share else None
            if outcome is None:
                return
            yield outcome

    def beat(self, share: int, best_us: float | None) -> None:
        """Note the time to beat, and that shares with smaller numbers have ended."""
        self._share = max(self._share, share)
        self._best_us = math.inf if best_us is None else best_us

    def ask(self, method: str, origin: str, problem: Problem, *arguments: Any) -> Any:
        """Return the answer of one of the device's methods about a problem."""
        if method not in _ASKED:
            raise ValueError(f"{method} is none of {', '.join(_ASKED)}")
        with self._using:
            return getattr(self._device, method)(_spec(origin), problem, *arguments)

    def close(self) -> None:
        self._device.close()

    def _to_beat_us(self) -> float | None:
        return None if math.isinf(self._best_us) else self._best_us


_specs: dict[str, KernelSpec] = {}


def _spec(origin: str) -> KernelSpec:
    """Load a spec once in this process."""
    if origin not in _specs:
        _specs[origin] = registry.load(origin)
    return _specs[origin]
