"""End a tuning: time its fastest candidates again in turns, declare the winner and store it.

A tie is settled by a rule that involves no luck, so that tuning again gives the same answer: among configs that cannot
be told apart, the spec's default goes first, then the config that takes less on-chip memory, then the first in
alphabetical order. A config that is tied only because of noise, and looks slower, does not win. The decision holds
until a trial recorded later may be faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tilewise.db.records import Scope, Status, Trial, canonical_json
from tilewise.db.store import Store
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.measure.adaptive_timing import MARGIN, summarise
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.tuning.evidence import evidence, explanation, timing_fields
from tilewise.tuner.tuning.race import ROUNDS, TIE, RaceResult, run_race

__all__ = ["CONTEST", "Rebenchmark", "rebenchmark_candidates"]

CONTEST = "contest"
"""The fact that holds a trial's result in the final comparison."""

MOST = 10
"""Limit on candidates, the default not counted; the fastest are taken."""


def rebenchmark_candidates(trials: Sequence[Trial]) -> list[Trial]:
    """Return the fastest verified trial and all whose interval overlaps with its own, fastest first, at most `MOST`.

    Intervals are widened by the change of the device that may go unnoticed between two trials. A time without an
    interval is taken as exact.
    """
    correct = [t for t in trials if t.status is Status.CORRECT and t.time_us is not None]
    best = min((t for t in correct if t.verified), key=_time, default=None)
    if best is None:
        return []
    return sorted((t for t in correct if _low(t) <= _high(best)), key=_time)[:MOST]


class Rebenchmark:
    """The final comparison of one tuning. `watch` is told the candidates before they are timed."""

    def __init__(
        self,
        spec: KernelSpec,
        problem: Problem,
        device: Device,
        store: Store,
        scope: Scope,
        watch: Callable[[Sequence[Trial]], None],
    ) -> None:
        self._spec, self._problem, self._device, self._store, self._scope = spec, problem, device, store, scope
        self._watch = watch

    def run(self, trials: Sequence[Trial]) -> None:
        """Declare the winner of these trials (a scope's current ones, in the order they were recorded) and store it.

        Does nothing where no candidate comes near the fastest, where an earlier decision still holds, or where the
        configs are not ranked by time.
        """
        if self._spec.objective or _still_holds(trials):
            return
        declared = self._by_race(trials) if self._device.noisy else self._by_record(trials)
        if declared:
            changed = {t.config_key for t in declared}
            stale = [t for t in trials if t.time_to_beat_us is not None and t.config_key not in changed]
            self._store.record(self._scope, [*(replace(t, time_to_beat_us=None) for t in stale), *declared])

    def _by_record(self, trials: Sequence[Trial]) -> list[Trial]:
        """Declare the winner by stored times, which are exact: trials with the smallest time are tied."""
        candidates = rebenchmark_candidates(trials)
        tied = sorted((t for t in candidates if t.time_us == candidates[0].time_us), key=_preference)
        winner = next((t for t in tied if self._is_right(t)), None)
        if winner is None or len(tied) == 1:
            return []
        result = RaceResult((), 1.0, 1.0, 1.0, behind=False, tied=True, chance=1 / len(tied))
        winner = replace(winner, verified=True, created=datetime.now(UTC))
        return [_declared(winner, _race_facts(result, len(tied)), _time(winner), len(tied))]

    def _by_race(self, trials: Sequence[Trial]) -> list[Trial]:
        """Race the candidates and return them with their new times, the winner last."""
        candidates = [replace(t, verified=True) for t in self._right_candidates(trials)]
        if len(candidates) < 2:
            return []
        self._watch(candidates)
        began = time.monotonic()
        self._settle(candidates)
        failed: dict[int, Outcome] = {}

        def time_rounds(indices: Sequence[int], rounds: int) -> list[Sequence[float]]:
            configs = [candidates[index].config for index in indices]
            outcomes = self._device.race(self._spec, self._problem, configs, rounds)
            failed.update((index, o) for index, o in zip(indices, outcomes, strict=True) if o.timing is None)
            return [outcome.timing.times_us if outcome.timing else () for outcome in outcomes]

        results = run_race(len(candidates), time_rounds)
        share = (time.monotonic() - began) / len(candidates)
        timed = [replace(t, created=datetime.now(UTC), seconds=t.seconds + share) for t in candidates]
        timed = [replace(t, time_to_beat_us=None) for t in timed]
        for index, result in enumerate(results):
            timed[index] = (
                _failed(timed[index], failed[index])
                if index in failed
                else self._timed(timed[index], result, len(candidates), share)
            )
        running = [t for t, result in zip(timed, results, strict=True) if not result.behind]
        if not running:
            return timed
        close = min(map(_time, running)) * (1 + TIE)
        winner = min((t for t in running if _time(t) <= close), key=_preference)
        others = [t for t in timed if t is not winner]
        raced = {t.config_key for t in timed}
        rest = [t for t in trials if t.config_key not in raced]
        known = [_time(t) for t in (*timed, *rest) if t.status is Status.CORRECT]
        return [*others, _declared(winner, winner.facts[CONTEST], min(known), len(running))]

    def _settle(self, candidates: Sequence[Trial]) -> None:
        """Run the candidates in turns until the device is at the clock that it keeps; these times do not count."""
        end = time.monotonic() + self._device.settle_seconds
        while time.monotonic() < end:
            self._device.race(self._spec, self._problem, [t.config for t in candidates], ROUNDS[0])

    def _right_candidates(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the candidates and the default, without those whose output is wrong."""
        default = [t for t in trials if t.is_default and t.status is Status.CORRECT]
        candidates = rebenchmark_candidates(trials)
        candidates += [t for t in default if t not in candidates]
        return [t for t in candidates if self._is_right(t)]

    def _is_right(self, trial: Trial) -> bool:
        if trial.verified:
            return True
        verdict = self._device.verify(self._spec, self._problem, trial.config)
        agreed, reason, status = verdict.agreed, verdict.reason, verdict.status
        self._store.verify(self._scope, trial.config, agreed=agreed, reason=reason, status=status)
        return agreed

    def _timed(self, trial: Trial, result: RaceResult, of: int, seconds: float) -> Trial:
        timing = replace(summarise(result.times_us), method=trial.method, l2=trial.l2)
        outcome = Outcome(Status.CORRECT, timing=timing, facts=trial.facts)
        facts = evidence(self._spec, self._problem, trial.config, self._device.target, outcome)
        return replace(
            trial,
            facts={**facts, CONTEST: {**_race_facts(result, of), "timing_s": round(seconds, 4)}},
            why=explanation(facts, timing.time_us),
            **timing_fields(timing),
        )


def _failed(trial: Trial, failure: Outcome) -> Trial:
    return replace(trial, status=failure.status, reason=f"in the final comparison: {failure.reason}", verified=False)


def _declared(winner: Trial, facts: Mapping[str, Any], beaten_us: float, running: int) -> Trial:
    """Return the winner as it is stored; `running` counts the candidates that are not behind, itself included."""
    summary = f"{facts['chance']:.1%} sure to be the fastest of {facts['of']} timed in turns"
    if running > 1:
        summary = f"tied with {running - 1} other{'s' * (running > 2)}, {_rule(winner)}"
    why = ", ".join(part for part in (winner.why, summary) if part)
    return replace(winner, time_to_beat_us=beaten_us, facts={**winner.facts, CONTEST: facts}, why=why)


def _race_facts(result: RaceResult, of: int) -> dict[str, Any]:
    return {
        "of": of,
        "rounds": len(result.times_us),
        "ratio": round(result.ratio, 5),
        "ratio_low": round(result.ratio_low, 5),
        "ratio_high": round(result.ratio_high, 5),
        "behind": result.behind,
        "tied": result.tied,
        "chance": round(result.chance, 4),
    }


def _preference(trial: Trial) -> tuple[bool, float, str]:
    """Return the sort key that settles ties."""
    return not trial.is_default, _on_chip(trial.facts), canonical_json(dict(trial.config))


def _rule(winner: Trial) -> str:
    """Return the rule that settled a tie."""
    if winner.is_default:
        return "the default goes first"
    return "settled by on-chip memory" if math.isfinite(_on_chip(winner.facts)) else "the first in alphabetical order"


def _on_chip(facts: Mapping[str, Any]) -> float:
    """Return the bytes of on-chip memory per program; infinity if unknown."""
    bits = facts.get("on_chip_bits")
    required = bits.get("required") if isinstance(bits, Mapping) else None
    found = facts.get("shared_bytes") if required is None else required / 8
    return float(found) if isinstance(found, int | float) else float("inf")


def _still_holds(trials: Sequence[Trial]) -> bool:
    """Return True if a winner was declared and no trial recorded later may be faster."""
    declared = [n for n, t in enumerate(trials) if t.time_to_beat_us is not None and t.verified]
    if not declared:
        return False
    winner = trials[declared[-1]]
    later = [t for t in trials[declared[-1] + 1 :] if t.status is Status.CORRECT and t.time_us is not None]
    return all(_low(t) > _high(winner) for t in later)


def _time(trial: Trial) -> float:
    assert trial.time_us is not None, "a correct trial has a time"
    return trial.time_us


def _low(trial: Trial) -> float:
    return _time(trial) if trial.low_us is None else trial.low_us


def _high(trial: Trial) -> float:
    return _time(trial) if trial.high_us is None else trial.high_us * (1 + MARGIN)
