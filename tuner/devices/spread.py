"""Several chips of one part as one device, over which the candidates of one problem are spread.

Chips of one part differ: by 8% at the mean between GPUs of one model, by 1.5x at worst (arXiv 2208.11035). So with each
share of a batch a chip also times two anchor configs. Its times are multiplied by what the anchors take on the first
chip over what they take on this one. The final comparison is on one chip.
"""

from __future__ import annotations

import math
import socket
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tilewise.db.records import canonical_json
from tilewise.errors import Unavailable, UsageError
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.base import Device
from tilewise.tuner.measure.outcome import Outcome, Timing, Verdict

__all__ = ["SpreadDevice"]

MAX_DRIFT = 0.03
"""Change of a chip's anchors, relative to the first chip's, beyond which it is drained."""

_ANCHORS = 2
_ToBeat = Callable[[], float | None]


def _tell(line: str) -> None:
    print(f"tilewise: {line}", file=sys.stderr, flush=True)


class _Chip:
    """A chip, and how much slower the first chip runs the anchors of the present problem, batch by batch."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.factors: list[float] = []

    @property
    def factor(self) -> float:
        """What this chip's times are multiplied by."""
        return statistics.fmean(self.factors) if self.factors else 1.0

    @property
    def drift(self) -> float:
        """The change of the last factor, relative to those before it."""
        return abs(self.factors[-1] / statistics.fmean(self.factors[:-1]) - 1) if len(self.factors) > 1 else 0.0


class SpreadDevice(Device):
    """Chips of one part and toolchain, which this device closes. Raises `UsageError` if they differ.

    A chip whose anchors move by more than `MAX_DRIFT` is drained: it is named, and another chip does its share again.
    So is one that is lost. Facts of an outcome name its `chip` and `host`, and the `anchor_factor`. Without `anchors`,
    times are left as they are; that is for studies.
    """

    def __init__(self, devices: Sequence[Device], *, anchors: bool = True, told: Callable[[str], None] = _tell) -> None:
        first = devices[0]
        for other in devices[1:]:
            if (other.target, other.toolchain) != (first.target, first.toolchain):
                raise UsageError(
                    f"{first.id} and {other.id} differ in their part or toolchain; one problem's configs can be spread "
                    "over equal chips only"
                )
        self.id = ",".join(device.id for device in devices)
        self.clock, self.target, self.toolchain = first.clock, first.target, first.toolchain
        self.batch = first.batch * len(devices)
        self.noisy, self.settle_seconds = first.noisy, first.settle_seconds
        self.notes = tuple(dict.fromkeys(note for device in devices for note in device.notes))
        self._all = list(devices)
        self._chips = [_Chip(device) for device in devices]
        self._anchored, self._told = anchors, told
        self._problem: tuple[str, Problem] | None = None
        self._anchors: list[tuple[Config, float]] = []
        """Configs with their times on the first chip, in microseconds."""
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(len(devices), thread_name_prefix="spread")

    # The contract -----------------------------------------------------------------------------------------------

    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: _ToBeat = lambda: None,
    ) -> Iterator[Outcome]:
        if self._problem != (spec.name, problem):
            self._problem, self._anchors = (spec.name, problem), []
            for chip in self._chips:
                chip.factors.clear()
        known: dict[int, Outcome] = {}
        if self._anchored and len(self._anchors) < _ANCHORS:
            known |= self._find_anchors(spec, problem, configs)
        try:
            while left := [index for index in range(len(configs)) if index not in known]:
                known |= self._share_out(spec, problem, configs, left, to_beat_us)
        except BaseException:
            self._stopping.set()
            raise
        yield from (known[index] for index in range(len(configs)))

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        return self._first.verify(spec, problem, config)

    def race(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int) -> Sequence[Outcome]:
        return self._first.race(spec, problem, configs, rounds)

    def memory_bytes(self) -> int:
        return min(device.memory_bytes() for device in self._all)

    def floor_us(self, spec: KernelSpec, problem: Problem) -> float | None:
        return self._first.floor_us(spec, problem)

    def subject(self, spec: KernelSpec, problem: Problem) -> tuple[KernelSpec, Problem, Target]:
        return self._first.subject(spec, problem)

    def predict_us(
        self, spec: KernelSpec, problem: Problem, configs: Sequence[Config]
    ) -> Sequence[float | None] | None:
        return self._first.predict_us(spec, problem, configs)

    def warm_up(self) -> None:
        for device in self._all:
            device.warm_up()

    def close(self) -> None:
        for device in self._all:
            device.close()
        self._threads.shutdown()

    @property
    def _first(self) -> Device:
        return self._chips[0].device

    # Anchors ------------------------------------------------------------------------------------------------------

    def _find_anchors(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> dict[int, Outcome]:
        """Time configs on the first chip until enough of them have a time; these are the anchors."""
        found = {}
        taken = {canonical_json(dict(config)) for config, _ in self._anchors}
        for index, config in enumerate(configs):
            if len(self._anchors) == _ANCHORS or canonical_json(dict(config)) in taken:
                continue
            (outcome,) = self._first.evaluate(spec, problem, [config])
            found[index] = self._noted(outcome, self._chips[0])
            if outcome.timing is not None:
                self._anchors.append((config, outcome.timing.time_us))
        return found

    def _measure_factor(self, chip: _Chip, spec: KernelSpec, problem: Problem) -> None:
        outcomes = chip.device.evaluate(spec, problem, [config for config, _ in self._anchors])
        ratios = [
            math.log(first_us / outcome.timing.time_us)
            for (_, first_us), outcome in zip(self._anchors, outcomes, strict=True)
            if outcome.timing is not None
        ]
        if ratios:
            chip.factors.append(math.exp(statistics.fmean(ratios)))

    # Shares -------------------------------------------------------------------------------------------------------

    def _share_out(
        self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], left: Sequence[int], to_beat_us: _ToBeat
    ) -> dict[int, Outcome]:
        """Deal the configs that are left out to the chips; return the outcomes of those that were not drained."""
        shares = [(chip, left[turn :: len(self._chips)]) for turn, chip in enumerate(self._chips)]
        running = [
            (
                chip,
                share,
                self._threads.submit(self._serve, chip, spec, problem, [configs[i] for i in share], to_beat_us),
            )
            for chip, share in shares
            if share
        ]
        known: dict[int, Outcome] = {}
        lost: Unavailable | None = None
        for chip, share, future in running:
            try:
                outcomes = future.result()
            except Unavailable as error:
                lost = error
                self._drain(chip, f"it is lost: {error}")
                continue
            if chip.drift > MAX_DRIFT and len(self._chips) > 1:
                self._drain(chip, f"its anchors moved by {chip.drift:.1%}")
                continue
            known |= dict(zip(share, outcomes, strict=True))
        if not self._chips:
            raise lost or Unavailable("no chip is left")
        return known

    def _serve(
        self, chip: _Chip, spec: KernelSpec, problem: Problem, configs: Sequence[Config], to_beat_us: _ToBeat
    ) -> list[Outcome]:
        if len(self._anchors) == _ANCHORS and len(self._all) > 1:
            self._measure_factor(chip, spec, problem)
        factor = chip.factor

        def to_beat_here() -> float | None:
            best_us = to_beat_us()
            return None if best_us is None else best_us / factor

        outcomes = []
        for outcome in chip.device.evaluate(spec, problem, configs, to_beat_us=to_beat_here):
            if self._stopping.is_set():
                break
            outcomes.append(self._noted(outcome, chip))
        return outcomes

    def _noted(self, outcome: Outcome, chip: _Chip) -> Outcome:
        facts = {**outcome.facts, "chip": chip.device.id, "host": socket.gethostname()}
        if chip.factors:
            facts["anchor_factor"] = round(chip.factor, 5)
        timing = None if outcome.timing is None else _scaled(outcome.timing, chip.factor)
        return replace(outcome, timing=timing, facts=facts)

    def _drain(self, chip: _Chip, why: str) -> None:
        self._chips.remove(chip)
        self._told(f"{chip.device.id} is drained: {why}")


def _scaled(timing: Timing, factor: float) -> Timing:
    if factor == 1.0:
        return timing
    fields = ("time_us", "p20_us", "p80_us", "low_us", "high_us")
    known = {name: value for name in fields if (value := getattr(timing, name)) is not None}
    scaled = {name: value * factor for name, value in known.items()}
    return replace(timing, times_us=tuple(one * factor for one in timing.times_us), **scaled)
