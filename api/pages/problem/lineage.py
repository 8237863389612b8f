"""One problem over devices, toolchains and sources: where it was tuned, when, and where it became slower."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tilewise.api.service.answers import registered
from tilewise.db.records import Question, Result, Scope, Trial
from tilewise.db.store import Store
from tilewise.tuner.space.problem_checks import config_text

__all__ = ["SLOWER", "Relative", "lineage", "newest_toolchains", "staleness"]

SLOWER = 1.02
"""A time that is at least so many times that of the toolchain before is marked, unless their intervals overlap."""


@dataclass(frozen=True, slots=True)
class Relative:
    """The problem's result in one scope. `change` is its time divided by that of the scope tuned before it on the same
    device with the same clock; `stale` says why look-ups pass it over, and is empty if they do not."""

    scope: Scope
    here: bool
    time_us: float | None
    speed_up: float | None
    tuned: datetime | None
    config: str
    change: float | None
    slower: bool
    flipped: bool
    stale: str


def lineage(store: Store, result: Result) -> list[Relative]:
    """Return the results of a result's problem in all scopes that have a winner, and in its own, by device and clock,
    the oldest first. This seeks once per device, however many problems are stored."""
    scope = result.scope
    found = [each for device in store.devices() for each in store.answers(Question(scope.problem, device))]
    if all(each.scope != scope for each in found):
        found.append(result)
    groups: dict[tuple[str, str], list[Result]] = {}
    for each in sorted(found, key=_order):
        groups.setdefault((each.scope.device, str(each.scope.clock)), []).append(each)
    return [relative for group in groups.values() for relative in _relatives(group, scope)]


def newest_toolchains(results: Iterable[Result]) -> dict[tuple[str, str], str]:
    """Return the toolchain of the latest winner on each device with each clock."""
    latest: dict[tuple[str, str], tuple[datetime, str]] = {}
    for result in results:
        if (created := _created(result)) is not None:
            key, found = (result.scope.device, str(result.scope.clock)), (created, result.scope.toolchain)
            latest[key] = max(found, latest.get(key, found))
    return {key: toolchain for key, (_, toolchain) in latest.items()}


def staleness(result: Result, newest: Mapping[tuple[str, str], str]) -> str:
    """Return why a result is out of date: another source than the registered one, or another toolchain than the newest
    one of its device and clock. Empty if it is not."""
    scope, known = result.scope, registered(result.scope.kernel)
    if known is not None and scope.source_hash != known[1]:
        return "of another version of the source"
    here = newest.get((scope.device, str(scope.clock)), scope.toolchain)
    return "" if here == scope.toolchain else "of an older toolchain"


def _relatives(group: Sequence[Result], scope: Scope) -> list[Relative]:
    found: list[Relative] = []
    before: Trial | None = None
    newest = newest_toolchains(group)
    for result in group:
        winner = result.winner
        found.append(
            Relative(
                scope=result.scope,
                here=result.scope == scope,
                time_us=winner.time_us if winner else None,
                speed_up=result.speed_up,
                tuned=_created(result),
                config=config_text(winner.config) if winner else "",
                change=_change(before, winner),
                slower=_is_slower(before, winner),
                flipped=bool(before and winner and dict(before.config) != dict(winner.config)),
                stale=staleness(result, newest),
            )
        )
        before = winner or before
    return found


def _change(before: Trial | None, now: Trial | None) -> float | None:
    return now.time_us / before.time_us if before and now and before.time_us and now.time_us else None


def _is_slower(before: Trial | None, now: Trial | None) -> bool:
    change = _change(before, now)
    overlap = before and now and before.high_us and now.low_us and now.low_us <= before.high_us
    return change is not None and change >= SLOWER and not overlap


def _created(result: Result) -> datetime | None:
    return result.winner.created if result.winner else None


def _order(result: Result) -> tuple[str, str, bool, float]:
    created = _created(result)
    scope = result.scope
    return scope.device, str(scope.clock), created is not None, created.timestamp() if created else 0.0
