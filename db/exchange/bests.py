"""Which result speaks for a problem where a format has room for one only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilewise.db.records import Clock, Result, Scope, Status, Trial
from tilewise.db.store import Store

__all__ = ["bests"]


def bests(store: Store, scopes: Iterable[Scope], *, unverified: bool = False) -> list[Result]:
    """One result for each problem and device name that has any, in the order they were first seen.

    As a look-up answers: measured before modelled, then the winner found last. With `unverified`, the fastest time
    stands in where nobody verified any.
    """
    found: dict[str, Result] = {}
    for scope in scopes:
        result = store.result(scope)
        if result.winner is None and unverified:
            result = replace(result, winner=_fastest(store.trials(scope)))
        if result.winner is None:
            continue
        rival = found.get(scope.question.key)
        if rival is None or _weight(result) > _weight(rival):
            found[scope.question.key] = result
    return list(found.values())


def _fastest(trials: Iterable[Trial]) -> Trial | None:
    correct = [trial for trial in trials if trial.status is Status.CORRECT]
    return min(correct, key=lambda trial: trial.time_us or 0, default=None)


def _weight(result: Result) -> tuple[bool, bool, float]:
    assert result.winner is not None, "only results with a winner are compared"
    return result.winner.verified, result.scope.clock is Clock.MEASURED, result.winner.created.timestamp()
