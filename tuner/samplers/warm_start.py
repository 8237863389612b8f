"""First candidates for a search, known from elsewhere: winners of other shapes, dtypes and devices, and configs that
somebody recommends.

Recommendations (imported tables, and times that nobody verified) say where to look, not what is fast: what is tried of
them is measured and verified like any other config.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilewise.db.records import Clock, Config, Problem, Scope, Status
from tilewise.db.store import Store
from tilewise.tuner.space.nearest_config import closest_indices
from tilewise.tuner.space.problem import shape_distance
from tilewise.tuner.space.search_space import Space

__all__ = ["MOST", "Neighbour", "neighbour_indices", "neighbours", "scope_distance", "with_suggestions"]

_OTHER_DTYPE, _OTHER_DEVICE, _OTHER_CLOCK, _OTHER_SOURCE = 0.7, 1.5, 0.3, 0.3
"""Distances added for another dtype, device, clock or version of the kernel, on the scale of `shape_distance`, where 1
is one dimension e times as large. Halving the dtype halves the bytes, as halving a dimension does (log 2 = 0.7)."""

MOST = 4
"""Neighbours that count: the nearest."""

_MOST_UNVERIFIED = 16
_MOST_SUGGESTIONS = 2
"""Recommendations that a search tries early."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What is known of another shape, dtype or device: the config that won, and the times of all that ran, in us."""

    away: float
    problem: Problem
    device: str
    winner: Config
    times: Sequence[tuple[Config, float]]


def neighbours(store: Store, wanted: Scope, most: int = MOST) -> list[Neighbour]:
    """The nearest other scopes of the kernel that have a winner, the nearest first."""
    found = (_neighbour(store, scope, scope_distance(scope, wanted)) for scope in _others(store, wanted)[: 4 * most])
    return list(itertools.islice((neighbour for neighbour in found if neighbour), most))


def neighbour_indices(known: Iterable[Neighbour], space: Space) -> list[int]:
    """Indices of the space's configs that are closest to the neighbours' winners."""
    return closest_indices(space, (neighbour.winner for neighbour in known))


def with_suggestions(
    store: Store, wanted: Scope, space: Space, won: Sequence[int], default: Config | None = None
) -> list[int]:
    """The config indices in `won`, and after the first of them those recommended nearest to `wanted`.

    What a recommendation leaves out (tables know few parameters) is taken from the spec's `default`.
    """
    unverified = _unverified(store, wanted, _others(store, wanted)[:_MOST_UNVERIFIED])
    near = sorted([*_recommended(store, wanted), *unverified], key=lambda found: found[0])
    complete = [{**(default or {}), **config} for _, config in near]
    told = [index for index in closest_indices(space, complete) if index not in won]
    return [*won[:1], *told[:_MOST_SUGGESTIONS], *won[1:]]


def scope_distance(one: Scope, other: Scope) -> float:
    """How different two scopes of a kernel are: the distance of their shapes, and something for all else."""
    differences = (
        (_OTHER_DTYPE, one.dtype != other.dtype),
        (_OTHER_DEVICE, one.device != other.device),
        (_OTHER_CLOCK, one.clock != other.clock),
        (_OTHER_SOURCE, one.source_hash != other.source_hash),
    )
    return shape_distance(one.dims, other.dims) + sum(away for away, differs in differences if differs)


def _others(store: Store, wanted: Scope) -> list[Scope]:
    """Other scopes of the same kernel, dimensions and flags, the nearest first."""
    others = (scope for scope in store.scopes(wanted.kernel) if scope.key != wanted.key)
    return sorted(
        (scope for scope in others if _is_comparable(scope.problem, wanted.problem)),
        key=lambda scope: scope_distance(scope, wanted),
    )


def _is_comparable(one: Problem, wanted: Problem) -> bool:
    """A recorded landscape has no dimensions: another scope of it would be its own answer."""
    return bool(wanted.dims) and one.dims.keys() == wanted.dims.keys() and one.flags == wanted.flags


def _neighbour(store: Store, scope: Scope, away: float) -> Neighbour | None:
    if (winner := store.result(scope).winner) is None:
        return None
    times = [(t.config, t.time_us) for t in store.trials(scope) if t.status is Status.CORRECT and t.time_us]
    return Neighbour(away, scope.problem, scope.device, winner.config, times)


def _recommended(store: Store, wanted: Scope) -> Iterator[tuple[float, Config]]:
    """Configs of imported tables, each with its distance."""
    for told in store.suggestions(wanted.kernel):
        if _is_comparable(told.problem, wanted.problem):
            scope = Scope(told.problem, "", told.device, Clock.MEASURED, told.origin, wanted.cores)
            yield scope_distance(scope, wanted), told.config


def _unverified(store: Store, wanted: Scope, scopes: Iterable[Scope]) -> Iterator[tuple[float, Config]]:
    """The fastest config of each scope in which nobody verified any, with its distance."""
    for scope in scopes:
        result = store.result(scope)
        if result.winner is None and result.counts.get(Status.CORRECT):
            timed = (trial for trial in store.trials(scope) if trial.status is Status.CORRECT)
            yield scope_distance(scope, wanted), min(timed, key=lambda trial: trial.time_us or 0).config
