"""Trials as evidence: what makes one impossible, which of two counts, which one wins, and what they add up to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from tilewise.db.records import Result, Scope, Status, Trial, canonical_json

__all__ = ["flaw", "outranks", "summarize", "winner"]

_COUNTS = ("samples", "ordinal", "seed")
_TIMES = {name: name for name in ("time_us", "p20_us", "p80_us", "low_us", "high_us")} | {
    "settled_us": "time_to_beat_us"
}
"""Fields by the name that stored and exported trials have for them."""


def flaw(trial: Trial) -> str | None:
    """Why this trial cannot have happened, in a few words; None where nothing is wrong with it."""
    return next(_flaws(trial), None)


def _flaws(trial: Trial) -> Iterator[str]:
    for name, field in _TIMES.items():
        time = getattr(trial, field)
        if time is not None and not 0 < time < math.inf:
            yield f"{name} is {time}; expected a positive number"
    for name in _COUNTS:
        count = getattr(trial, name)
        if count is not None and not 0 <= count < 2**63:
            yield f"{name} is {count}; expected 0 or more, below 2^63"
    if not 0 <= trial.seconds < math.inf:
        yield f"seconds is {trial.seconds}; expected 0 or more"
    yield from _contradictions(trial)
    try:
        canonical_json([dict(trial.config), dict(trial.facts)])
    except (TypeError, ValueError) as error:
        yield f"its config or facts are not plain JSON: {error}"


def _contradictions(trial: Trial) -> Iterator[str]:
    if trial.status is Status.CORRECT and trial.time_us is None:
        yield "it is correct but has no time_us"
    if trial.verified and trial.status is not Status.CORRECT:
        yield f"it is verified but its status is {trial.status}"
    if trial.p20_us is not None and trial.p80_us is not None and trial.p20_us > trial.p80_us:
        yield f"p20_us {trial.p20_us} is above p80_us {trial.p80_us}"
    if trial.low_us is not None and trial.high_us is not None and trial.low_us > trial.high_us:
        yield f"low_us {trial.low_us} is above high_us {trial.high_us}"
    if trial.time_to_beat_us is not None and (trial.time_us is None or trial.time_to_beat_us > trial.time_us):
        yield f"settled_us {trial.time_to_beat_us} is above time_us {trial.time_us}"
    if trial.created.tzinfo is None:
        yield "created has no time zone"


def winner(trials: Iterable[Trial]) -> Trial | None:
    """What the `best` view finds among a scope's current trials, given in the order they were recorded."""
    verified = [trial for trial in trials if trial.verified and trial.status is Status.CORRECT]
    return min(verified, key=_rank, default=None)


def _rank(trial: Trial) -> tuple[float, bool, bool, int]:
    return trial.ranking_us or math.inf, trial.time_to_beat_us is None, trial.ordinal is None, trial.ordinal or 0


def outranks(trial: Trial, other: Trial) -> bool:
    """Whether `trial` is better evidence than another of the same scope and config.

    A wrong output says most, then a right one, then a failure (which a busy machine may cause), then a time alone. Of
    two that say the same the one of more repetitions counts, then one that was declared the winner, then the later.
    The order is total, so that it does not matter which of several files is merged first.
    """
    return _weight(trial) > _weight(other)


def _weight(trial: Trial) -> tuple[int, int, bool, datetime, str]:
    """The last part decides between trials that differ in nothing that counts."""
    if trial.status is Status.CORRECT:
        says = 2 if trial.verified else 0
    else:
        says = 3 if trial.status is Status.CORRECTNESS else 1
    return (
        says,
        trial.samples,
        trial.time_to_beat_us is not None,
        trial.created,
        canonical_json([trial.time_us, str(trial.status)]),
    )


def summarize(scope: Scope, trials: Sequence[Trial]) -> Result:
    """The result of these trials, in the order they were recorded: what a store says while they are current."""
    return Result(
        scope=scope,
        winner=winner(trials),
        default=next((trial for trial in reversed(trials) if trial.is_default), None),
        counts=Counter(trial.status for trial in trials),
        seconds=math.fsum(trial.seconds for trial in trials),
    )
