"""Several chips of one part as one device, over which the candidates of one problem are spread.

Chips of one part differ: by 8% at the mean between GPUs of one model, by 1.5x at worst (arXiv 2208.11035). So each
chip also times two anchor configs, at first and again after every few configs. Its times are multiplied by what the
anchors take on the first chip over what they take on this one. The final comparison is on one chip.
"""

from __future__ import annotations

import math
import socket
import statistics
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

from tilewise.db.records import Scope, Status, Trial, canonical_json
from tilewise.errors import Unavailable, UsageError
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.crew import Crew
from tilewise.tuner.measure.outcome import Outcome, Timing, Verdict

__all__ = ["SpreadDevice", "comparable"]

MAX_DRIFT = 0.03
"""Change of a chip's anchors, relative to the first chip's, beyond which it is drained."""

_ANCHORS = 2
_GIVEN = 4
"""Anchors of a tuning that another chip has begun: its fastest configs look a little faster than they are."""

_CONFIGS_A_FACTOR = 24
"""Configs that a chip times before it times the anchors again, which takes 8% of its time then."""

_ToBeat = Callable[[], float | None]
_News = tuple[int, Outcome]
"""The index of a config, and its outcome."""

_Share = Sequence[tuple[int, Config]]


def _tell(line: str) -> None:
    print(f"tilewise: {line}", file=sys.stderr)


class _Chip:
    """A chip, and how much slower the first chip runs the anchors of the present problem, each time they are timed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.factors: list[float] = []
        self.since = 0
        """Configs timed since the last factor was measured."""

    @property
    def factor(self) -> float:
        """The number by which this chip's times are multiplied."""
        return statistics.fmean(self.factors) if self.factors else 1.0

    @property
    def drift(self) -> float:
        """The change of the last factor, relative to those before it."""
        return abs(self.factors[-1] / statistics.fmean(self.factors[:-1]) - 1) if len(self.factors) > 1 else 0.0


class _Shares:
    """The configs that no chip has begun: each chip's own, and those inherited from chips that were drained."""

    def __init__(self, chips: Sequence[_Chip]) -> None:
        self.own = {chip: deque[_Share]() for chip in chips}
        self.inherited: deque[_Share] = deque()

    def deal(self, chips: Sequence[_Chip], batch: _Share) -> None:
        for turn, chip in enumerate(chips):
            if share := batch[turn :: len(chips)]:
                self.own[chip].append(share)

    def inherit(self, chips: Sequence[_Chip]) -> None:
        for chip in chips:
            self.inherited.extend(self.own[chip])
            self.own[chip].clear()

    def take(self, chip: _Chip) -> _Share | None:
        for shares in (self.own[chip], self.inherited):
            with suppress(IndexError):  # another chip may take the last one
                return shares.popleft()
        return None


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
        self.batch, self.draws_ahead = first.batch * len(devices), len(devices) > 1
        self.noisy, self.settle_seconds = first.noisy, first.settle_seconds
        self.measures_energy = all(device.measures_energy for device in devices)
        self.notes = tuple(dict.fromkeys(note for device in devices for note in device.notes))
        self._all = list(devices)
        self._chips = [_Chip(device) for device in devices]
        self._anchored, self._told = anchors, told
        self._problem: Problem | None = None
        self._given = False
        self._anchors: list[tuple[Config, float]] = []
        """Configs with their times on the first chip, in microseconds. If they were `_given`, that is another one."""
        self._stopping = threading.Event()
        self._draining = threading.Lock()
        self._lost: Unavailable | None = None
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
        for outcomes in self.evaluate_batches(spec, problem, iter([configs]), to_beat_us=to_beat_us):
            yield from outcomes

    def evaluate_batches(
        self,
        spec: KernelSpec,
        problem: Problem,
        batches: Iterator[Sequence[Config]],
        *,
        to_beat_us: _ToBeat = lambda: None,
    ) -> Iterator[Sequence[Outcome]]:
        if self._problem != problem:
            self._set_anchors(problem, [])
        if len(self._all) == 1:
            yield from self._alone(spec, problem, batches, to_beat_us)
            return
        known, drawn, given, draw_at = dict[int, Outcome](), 0, 0, 0
        shares = _Shares(self._chips)
        with self._crew() as crew:
            while True:
                if given == draw_at and (configs := next(batches, None)) is not None:
                    known |= self._deal(spec, problem, list(enumerate(configs, drawn)), shares)
                    drawn += len(configs)
                    draw_at = drawn - len(configs) // 2
                if given == drawn:
                    return
                self._begin(crew, shares, spec, problem, to_beat_us)
                most = draw_at if given < draw_at else drawn
                if ready := list(takewhile(known.__contains__, range(given, most))):
                    given += len(ready)
                    yield [known.pop(index) for index in ready]
                else:
                    known.update(crew.hear())

    def _alone(
        self, spec: KernelSpec, problem: Problem, batches: Iterator[Sequence[Config]], to_beat_us: _ToBeat
    ) -> Iterator[Sequence[Outcome]]:
        """Yield the outcomes of the only chip, which this thread serves."""
        for configs in batches:
            for _, outcome in self._serve(self._chips[0], spec, problem, list(enumerate(configs)), to_beat_us):
                yield [outcome]
            if not self._chips:
                raise self._none_left()

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        return self._first.verify(spec, problem, config)

    def race(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int) -> Sequence[Outcome]:
        if self._given and not self._chips[0].factors:
            self._measure_factor(self._chips[0], spec, problem)
        outcomes = self._first.race(spec, problem, configs, rounds)
        return [self._noted(outcome, self._chips[0]) for outcome in outcomes] if self._given else outcomes

    def scope(self, spec: KernelSpec, problem: Problem) -> Scope:
        return self._first.scope(spec, problem)

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
        self._stopping.set()
        for device in self._all:
            device.close()
        self._threads.shutdown()

    @property
    def _first(self) -> Device:
        return self._chips[0].device

    def compare_with(self, problem: Problem, trials: Sequence[Trial]) -> None:
        """Have the chips time some of these trials again, if another chip timed any: that is the first chip then."""
        self._set_anchors(problem, _anchors_of(trials, self._first))

    # Anchors ------------------------------------------------------------------------------------------------------

    def _set_anchors(self, problem: Problem, anchors: Sequence[tuple[Config, float]]) -> None:
        self._problem, self._anchors, self._given = problem, list(anchors), bool(anchors)
        for chip in self._chips:
            chip.factors.clear()

    def _find_anchors(self, spec: KernelSpec, problem: Problem, batch: _Share) -> dict[int, Outcome]:
        """Time configs on all chips until enough of them have a time on the first; these are the anchors.

        Returns the first chip's outcomes.
        """
        found, times_us = dict[int, Outcome](), dict[_Chip, list[float]]()
        taken = {canonical_json(dict(config)) for config, _ in self._anchors}
        for index, config in batch:
            if len(self._anchors) == _ANCHORS or canonical_json(dict(config)) in taken:
                continue
            outcomes = self._on_all(spec, problem, config)
            found[index] = self._noted(outcomes[self._chips[0]], self._chips[0])
            if (timing := outcomes[self._chips[0]].timing) is not None:
                self._anchors.append((config, timing.time_us))
                for chip, outcome in outcomes.items():
                    times_us.setdefault(chip, []).extend([outcome.timing.time_us] if outcome.timing else [])
        for chip, here_us in times_us.items():
            if len(here_us) == _ANCHORS:  # otherwise it times them again before its share
                self._add_factor(chip, here_us)
        return found

    def _on_all(self, spec: KernelSpec, problem: Problem, config: Config) -> dict[_Chip, Outcome]:
        """Time a config on all chips at once. Of those that are lost, only the first raises; another has no outcome."""

        def timed(number: int, device: Device) -> Iterator[_News]:
            try:
                for outcome in device.evaluate(spec, problem, [config]):
                    yield number, outcome
            except Unavailable:
                if number == 0:
                    raise

        found = dict[_Chip, Outcome]()
        with self._crew() as crew:
            for number, chip in enumerate(self._chips):
                crew.begin(chip, timed(number, chip.device))
            while crew.busy:
                found.update((self._chips[number], outcome) for number, outcome in crew.hear())
        return found

    def _measure_factor(self, chip: _Chip, spec: KernelSpec, problem: Problem) -> None:
        outcomes = chip.device.evaluate(spec, problem, [config for config, _ in self._anchors])
        self._add_factor(chip, [None if outcome.timing is None else outcome.timing.time_us for outcome in outcomes])

    def _add_factor(self, chip: _Chip, times_us: Sequence[float | None]) -> None:
        """Add a factor from what the anchors took on this chip; None is a failure there."""
        timed = zip(self._anchors, times_us, strict=True)
        ratios = [math.log(first_us / time_us) for (_, first_us), time_us in timed if time_us is not None]
        chip.since = 0
        if ratios:
            chip.factors.append(math.exp(statistics.fmean(ratios)))

    # Shares -------------------------------------------------------------------------------------------------------

    def _crew(self) -> Crew[_Chip, _News]:
        crew = Crew[_Chip, _News](self._threads)
        self._stopping = crew.stopping
        return crew

    def _deal(self, spec: KernelSpec, problem: Problem, batch: _Share, shares: _Shares) -> dict[int, Outcome]:
        """Deal a batch to the chips, and return the outcomes of those configs that were timed as anchors before."""
        found = dict[int, Outcome]()
        if self._anchored and not self._given and len(self._anchors) < _ANCHORS:
            found = self._find_anchors(spec, problem, batch)
        if not (chips := list(self._chips)):
            raise self._none_left()
        shares.deal(chips, [(index, config) for index, config in batch if index not in found])
        return found

    def _begin(
        self, crew: Crew[_Chip, _News], shares: _Shares, spec: KernelSpec, problem: Problem, to_beat_us: _ToBeat
    ) -> None:
        """Have the chips that do nothing work on the shares that are left."""
        shares.inherit([chip for chip in shares.own if chip not in self._chips and chip not in crew.busy])
        for chip in [chip for chip in self._chips if chip not in crew.busy]:
            if shares.own[chip] or shares.inherited:
                crew.begin(chip, self._take(chip, shares, spec, problem, to_beat_us))
        if shares.inherited and not self._chips:
            raise self._none_left()

    def _take(
        self, chip: _Chip, shares: _Shares, spec: KernelSpec, problem: Problem, to_beat_us: _ToBeat
    ) -> Iterator[_News]:
        """Serve one share after the other. A chip that is drained leaves the rest to the others."""
        while (share := shares.take(chip)) is not None:
            left = deque(share)
            for news in self._serve(chip, spec, problem, share, to_beat_us):
                left.popleft()
                yield news
            if left:
                shares.own[chip].appendleft(list(left))
                return

    def _none_left(self) -> Unavailable:
        return self._lost or Unavailable("no chip is left")

    def _serve(
        self, chip: _Chip, spec: KernelSpec, problem: Problem, share: _Share, to_beat_us: _ToBeat
    ) -> Iterator[_News]:
        """Time a chip's share, unless its anchors have moved. Drain the chip if it is lost."""
        try:
            if self._is_to_be_anchored(chip):
                self._measure_factor(chip, spec, problem)
                if chip.drift > MAX_DRIFT and self._drain(chip, f"its anchors moved by {chip.drift:.1%}", but_one=True):
                    return
            factor = chip.factor

            def to_beat_here() -> float | None:
                best_us = to_beat_us()
                return None if best_us is None else best_us / factor

            configs = [config for _, config in share]
            outcomes = chip.device.evaluate(spec, problem, configs, to_beat_us=to_beat_here)
            for (index, _), outcome in zip(share, outcomes, strict=True):
                chip.since += 1
                yield index, self._noted(outcome, chip)
        except Unavailable as error:
            self._lost = error
            self._drain(chip, f"it is lost: {error}")

    def _is_to_be_anchored(self, chip: _Chip) -> bool:
        is_due = not chip.factors or chip.since >= _CONFIGS_A_FACTOR
        has_anchors = self._given or len(self._anchors) >= _ANCHORS
        return has_anchors and is_due

    def _noted(self, outcome: Outcome, chip: _Chip) -> Outcome:
        facts = {**outcome.facts, **_place(chip.device)}
        if chip.factors:
            facts["anchor_factor"] = round(chip.factor, 5)
        timing = None if outcome.timing is None else _scaled(outcome.timing, chip.factor)
        return replace(outcome, timing=timing, facts=facts)

    def _drain(self, chip: _Chip, why: str, *, but_one: bool = False) -> bool:
        """Take a chip out and name it. Returns False, and does nothing, if it is to be kept as the last one."""
        with self._draining:
            if but_one and len(self._chips) == 1:
                return False
            self._chips.remove(chip)
        self._told(f"{chip.device.id} is drained: {why}")
        return True


def comparable(device: Device) -> Device:
    """Return a device that measures as one whose times can be compared with another chip's; any other as it is.

    It needs no closing of its own.
    """
    return device if isinstance(device, SpreadDevice) or not device.noisy else SpreadDevice([device])


def _anchors_of(trials: Sequence[Trial], device: Device) -> list[tuple[Config, float]]:
    """Return the fastest stored configs with their times, if another chip than this one timed any trial.

    Those that were dropped come last: they have fewer samples, but are all that a fast first config leaves. Times of
    several chips are those of the first already.
    """
    here = _place(device)
    if not any("anchor_factor" in trial.facts or _is_elsewhere(trial, here) for trial in trials):
        return []
    timed = [(t.dropped, t.time_us, t.config) for t in trials if t.status is Status.CORRECT and t.time_us is not None]
    return [(config, time_us) for _, time_us, config in sorted(timed, key=lambda each: each[:2])[:_GIVEN]]


def _place(device: Device) -> dict[str, str]:
    """Return the facts that tell which chip it is: its id on its host, and its serial if that is known."""
    here = {"chip": device.id, "host": device.host or socket.gethostname()}
    return here | ({"serial": device.serial} if device.serial else {})


def _is_elsewhere(trial: Trial, here: Mapping[str, str]) -> bool:
    """Return whether another chip timed the trial. Ids change with what a process sees, and hosts are renamed."""
    names = ("serial",) if "serial" in trial.facts.keys() & here.keys() else ("chip", "host")
    return any(trial.facts.get(name) != here[name] for name in names)


def _scaled(timing: Timing, factor: float) -> Timing:
    if factor == 1.0:
        return timing
    fields = ("time_us", "p20_us", "p80_us", "low_us", "high_us")
    known = {name: value for name in fields if (value := getattr(timing, name)) is not None}
    scaled = {name: value * factor for name, value in known.items()}
    return replace(timing, times_us=tuple(one * factor for one in timing.times_us), **scaled)
