"""Trials as evidence: the flaws of a trial, the better of two trials, and the winner and result of a scope."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from tilewise.db.records import Result, Scope, Status, Trial, canonical_json
from tilewise.errors import StoreError

__all__ = ["flaw", "outranks", "refuse_flaws", "summarize", "winner"]

_COUNTS = ("samples", "ordinal", "seed")
_TIMES = {name: name for name in ("time_us", "p20_us", "p80_us", "low_us", "high_us")} | {
    "settled_us": "time_to_beat_us"
}
"""The field of each time, by its name in stored and exported trials."""


def flaw(trial: Trial) -> str | None:
    """Return why this trial is impossible, in a few words, or None if nothing is wrong with it."""
    return next(_flaws(trial), None)


def refuse_flaws(trials: Sequence[Trial]) -> None:
    """Raise `StoreError` if one of the trials is impossible."""
    for trial in trials:
        if found := flaw(trial):
            raise StoreError(f"cannot store the trial of {dict(trial.config)}: {found}")


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
    """Return the trial that the `best` view selects from a scope's current trials, given in recorded order."""
    verified = [trial for trial in trials if trial.verified and trial.status is Status.CORRECT]
    return min(verified, key=_rank, default=None)


def _rank(trial: Trial) -> tuple[float, bool, bool, int]:
    return trial.ranking or math.inf, trial.time_to_beat_us is None, trial.ordinal is None, trial.ordinal or 0


def outranks(trial: Trial, other: Trial) -> bool:
    """Return whether `trial` is better evidence than `other`, a trial of the same scope and config.

    A wrong output ranks highest, then a verified trial, then another failure (which a busy machine may cause), then an
    unverified time, then a config that a model could not judge. Within a rank more repetitions count, then having been
    declared the winner, then the later time of creation. The order is total, so files can be merged in any order.
    """
    return _weight(trial) > _weight(other)


_FAILURES = {Status.CORRECTNESS: 3, Status.UNMODELLED: -1}


def _weight(trial: Trial) -> tuple[int, int, bool, datetime, str]:
    """Return a sort key whose last part only decides between trials that are otherwise equal evidence."""
    rank = 2 * trial.verified if trial.status is Status.CORRECT else _FAILURES.get(trial.status, 1)
    return (
        rank,
        trial.samples,
        trial.time_to_beat_us is not None,
        trial.created,
        canonical_json([trial.time_us, str(trial.status)]),
    )


def summarize(scope: Scope, trials: Sequence[Trial]) -> Result:
    """Return the result of these trials, given in recorded order, as a store returns it while they are current."""
    return Result(
        scope=scope,
        winner=winner(trials),
        default=next((trial for trial in reversed(trials) if trial.is_default), None),
        counts=Counter(trial.status for trial in trials),
        seconds=math.fsum(trial.seconds for trial in trials),
    )
