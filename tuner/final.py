"""How a tuning ends: its leaders are timed again in turns, one of them is declared the winner, and that is stored.

A tie is settled by a rule that has nothing to do with luck, so that tuning again gives the same answer: of those that
look alike, the spec's default goes first, then what takes less on-chip memory, then the config that comes first in
writing. Those that only noise keeps in the tie, and look slower, do not win it. The verdict holds until something that
was recorded later may be faster.
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
from tilewise.tuner import contest
from tilewise.tuner.contest import TIE, Standing
from tilewise.tuner.devices.base import Device, Outcome
from tilewise.tuner.measurement import MARGIN, summarise
from tilewise.tuner.why import evidence, sentence

__all__ = ["CONTEST", "Final", "leaders"]

CONTEST = "contest"
"""Among a trial's facts: how it came out when the leaders were compared."""

MOST = 10
"""Contestants, the default not counted: of more that cannot be told apart from the best, the fastest."""


def leaders(trials: Sequence[Trial]) -> list[Trial]:
    """The fastest verified trial and all whose interval overlaps with its, fastest first, `MOST` at most.

    Intervals are widened by what the device may have changed unseen between two trials. A time without an interval is
    taken as exact.
    """
    correct = [t for t in trials if t.status is Status.CORRECT and t.time_us is not None]
    best = min((t for t in correct if t.verified), key=_time, default=None)
    if best is None:
        return []
    return sorted((t for t in correct if _low(t) <= _high(best)), key=_time)[:MOST]


class Final:
    """The final of one tuning. `watch` is told, before they are timed, who takes part."""

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

    def hold(self, trials: Sequence[Trial]) -> None:
        """Declare the winner of these trials (a scope's current ones, in the order they were recorded) and store it;
        does nothing where nobody comes near the fastest, or where an earlier verdict still holds."""
        if _stands(trials):
            return
        declared = self._by_contest(trials) if self._device.noisy else self._by_record(trials)
        if declared:
            changed = {t.config_key for t in declared}
            stale = [t for t in trials if t.settled_us is not None and t.config_key not in changed]
            self._store.record(self._scope, [*(replace(t, settled_us=None) for t in stale), *declared])

    def _by_record(self, trials: Sequence[Trial]) -> list[Trial]:
        """Times are exact: who shares the smallest is tied."""
        entered = leaders(trials)
        tied = sorted((t for t in entered if t.time_us == entered[0].time_us), key=_preference)
        winner = next((t for t in tied if self._is_right(t)), None)
        if winner is None or len(tied) == 1:
            return []
        standing = Standing((), 1.0, 1.0, 1.0, behind=False, tied=True, chance=1 / len(tied))
        winner = replace(winner, verified=True, created=datetime.now(UTC))
        return [_declared(winner, _contest_facts(standing, len(tied)), _time(winner), len(tied))]

    def _by_contest(self, trials: Sequence[Trial]) -> list[Trial]:
        """The contestants with the times of their contest, the winner last."""
        entered = [replace(t, verified=True) for t in self._contestants(trials)]
        if len(entered) < 2:
            return []
        self._watch(entered)
        began = time.monotonic()
        failed: dict[int, Outcome] = {}

        def time_rounds(numbers: Sequence[int], rounds: int) -> list[Sequence[float]]:
            configs = [entered[n].config for n in numbers]
            outcomes = self._device.contest(self._spec, self._problem, configs, rounds)
            failed.update((n, o) for n, o in zip(numbers, outcomes, strict=True) if o.timing is None)
            return [outcome.timing.times_us if outcome.timing else () for outcome in outcomes]

        standings = contest.hold(len(entered), time_rounds)
        share = (time.monotonic() - began) / len(entered)
        timed = [replace(t, created=datetime.now(UTC), seconds=t.seconds + share, settled_us=None) for t in entered]
        for number, standing in enumerate(standings):
            timed[number] = (
                _failed(timed[number], failed[number])
                if number in failed
                else self._timed(timed[number], standing, len(entered), share)
            )
        running = [t for t, standing in zip(timed, standings, strict=True) if not standing.behind]
        if not running:
            return timed
        close = min(map(_time, running)) * (1 + TIE)
        winner = min((t for t in running if _time(t) <= close), key=_preference)
        others = [t for t in timed if t is not winner]
        contested = {t.config_key for t in timed}
        rest = [t for t in trials if t.config_key not in contested]
        known = [_time(t) for t in (*timed, *rest) if t.status is Status.CORRECT]
        return [*others, _declared(winner, winner.facts[CONTEST], min(known), len(running))]

    def _contestants(self, trials: Sequence[Trial]) -> list[Trial]:
        """The leaders and the default, as far as they are right."""
        default = [t for t in trials if t.is_default and t.status is Status.CORRECT]
        entered = leaders(trials)
        entered += [t for t in default if t not in entered]
        return [t for t in entered if self._is_right(t)]

    def _is_right(self, trial: Trial) -> bool:
        if trial.verified:
            return True
        verdict = self._device.verify(self._spec, self._problem, trial.config)
        agreed, reason, status = verdict.agreed, verdict.reason, verdict.status
        self._store.verify(self._scope, trial.config, agreed=agreed, reason=reason, status=status)
        return agreed

    def _timed(self, trial: Trial, standing: Standing, of: int, seconds: float) -> Trial:
        timing = summarise(standing.times_us)
        outcome = Outcome(Status.CORRECT, timing=timing, facts=trial.facts)
        facts = evidence(self._spec, self._problem, trial.config, self._device.target, outcome)
        return replace(
            trial,
            time_us=timing.time_us,
            p20_us=timing.p20_us,
            p80_us=timing.p80_us,
            low_us=timing.low_us,
            high_us=timing.high_us,
            samples=timing.samples,
            dropped=False,
            facts={**facts, CONTEST: {**_contest_facts(standing, of), "timing_s": round(seconds, 4)}},
            why=sentence(facts, timing.time_us),
        )


def _failed(trial: Trial, failure: Outcome) -> Trial:
    return replace(trial, status=failure.status, reason=f"in the final: {failure.reason}", verified=False)


def _declared(winner: Trial, facts: Mapping[str, Any], beaten_us: float, running: int) -> Trial:
    """The winner as it is stored; `running` counts those that are not behind, itself among them."""
    said = f"{facts['chance']:.1%} sure to be the fastest of {facts['of']} timed in turns"
    if running > 1:
        said = f"tied with {running - 1} other{'s' * (running > 2)}, {_rule(winner)}"
    why = ", ".join(part for part in (winner.why, said) if part)
    return replace(winner, settled_us=beaten_us, facts={**winner.facts, CONTEST: facts}, why=why)


def _contest_facts(standing: Standing, of: int) -> dict[str, Any]:
    return {
        "of": of,
        "rounds": len(standing.times_us),
        "ratio": round(standing.ratio, 5),
        "ratio_low": round(standing.ratio_low, 5),
        "ratio_high": round(standing.ratio_high, 5),
        "behind": standing.behind,
        "tied": standing.tied,
        "chance": round(standing.chance, 4),
    }


def _preference(trial: Trial) -> tuple[bool, float, str]:
    """How ties are settled."""
    return not trial.is_default, _on_chip(trial.facts), canonical_json(dict(trial.config))


def _rule(winner: Trial) -> str:
    """By what it won a tie."""
    if winner.is_default:
        return "the default goes first"
    return "settled by on-chip memory" if math.isfinite(_on_chip(winner.facts)) else "the first in writing"


def _on_chip(facts: Mapping[str, Any]) -> float:
    """Bytes of on-chip memory that a program takes; what is unknown counts as most."""
    bits = facts.get("on_chip_bits")
    required = bits.get("required") if isinstance(bits, Mapping) else None
    found = facts.get("shared_bytes") if required is None else required / 8
    return float(found) if isinstance(found, int | float) else float("inf")


def _stands(trials: Sequence[Trial]) -> bool:
    """Whether a verdict is there that nothing recorded later may change."""
    declared = [n for n, t in enumerate(trials) if t.settled_us is not None and t.verified]
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
