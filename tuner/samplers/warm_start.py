"""First candidates for a search: winners of other shapes, dtypes and devices, and recommended configs.

Recommendations (imported tables, and trials that were never verified) say where to look, not what is fast: a
recommended config is measured and verified like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilewise.db.records import Clock, Config, Problem, Scope, Status
from tilewise.db.store import Store
from tilewise.tuner.space.nearest_config import closest_indices
from tilewise.tuner.space.problem_checks import shape_distance
from tilewise.tuner.space.search_space import Space

__all__ = ["MOST", "Neighbour", "neighbour_indices", "neighbours", "scope_distance", "with_suggestions"]

_OTHER_DTYPE, _OTHER_DEVICE, _OTHER_CLOCK, _OTHER_SOURCE = 0.7, 1.5, 0.3, 0.3
"""Distances added for another dtype, device, clock or version of the kernel, on the scale of `shape_distance`, where 1
is one dimension e times as large. Halving the dtype halves the bytes, as halving a dimension does (log 2 = 0.7). The
other three were chosen by hand and never ablated."""

MOST = 4
"""Limit on neighbours; the nearest count. Chosen by hand and never ablated, as are the two limits below."""

_UNVERIFIED_LIMIT = 16
"""Limit on the trials that were never verified among the recommendations. Chosen by hand."""

_SUGGESTION_LIMIT = 2
"""Limit on the recommendations that a search tries early. Chosen by hand."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another shape, dtype or device of the kernel: the config that won there, and the times in us of all that ran."""

    away: float
    problem: Problem
    device: str
    winner: Config
    times: Sequence[tuple[Config, float]]


def neighbours(store: Store, wanted: Scope, most: int = MOST) -> list[Neighbour]:
    """Return the nearest other scopes of the kernel that have a winner, the nearest first."""
    found = (_neighbour(store, scope, scope_distance(scope, wanted)) for scope in _others(store, wanted)[: 4 * most])
    return list(itertools.islice((neighbour for neighbour in found if neighbour), most))


def neighbour_indices(known: Iterable[Neighbour], space: Space) -> list[int]:
    """Return the indices of the space's configs that are closest to the neighbours' winners."""
    return closest_indices(space, (neighbour.winner for neighbour in known))


def with_suggestions(
    store: Store, wanted: Scope, space: Space, won: Sequence[int], default: Config | None = None
) -> list[int]:
    """Return the config indices in `won`, with those recommended nearest to `wanted` after the first of them.

    Parameters that a recommendation lacks (tables have few) get the value of the spec's `default`.
    """
    unverified = _unverified(store, wanted, _others(store, wanted)[:_UNVERIFIED_LIMIT])
    near = sorted([*_recommended(store, wanted), *unverified], key=lambda found: found[0])
    complete = [{**(default or {}), **config} for _, config in near]
    suggested = [index for index in closest_indices(space, complete) if index not in won]
    return [*won[:1], *suggested[:_SUGGESTION_LIMIT], *won[1:]]


def scope_distance(one: Scope, other: Scope) -> float:
    """Return the distance of two scopes of a kernel: that of their shapes, plus a constant per other difference."""
    differences = (
        (_OTHER_DTYPE, one.dtype != other.dtype),
        (_OTHER_DEVICE, one.device != other.device),
        (_OTHER_CLOCK, one.clock != other.clock),
        (_OTHER_SOURCE, one.source_hash != other.source_hash),
    )
    return shape_distance(one.dims, other.dims) + sum(away for away, differs in differences if differs)


def _others(store: Store, wanted: Scope) -> list[Scope]:
    """Return other scopes of the same kernel, dimension names and flags, the nearest first."""
    others = (scope for scope in store.scopes(wanted.kernel) if scope.key != wanted.key)
    return sorted(
        (scope for scope in others if _is_comparable(scope.problem, wanted.problem)),
        key=lambda scope: scope_distance(scope, wanted),
    )


def _is_comparable(one: Problem, wanted: Problem) -> bool:
    """Return whether two problems have the same dimension names and flags.

    A recorded landscape has no dimensions and compares with nothing: another scope of it would give its answer away.
    """
    return bool(wanted.dims) and one.dims.keys() == wanted.dims.keys() and one.flags == wanted.flags


def _neighbour(store: Store, scope: Scope, away: float) -> Neighbour | None:
    if (winner := store.result(scope).winner) is None:
        return None
    times = [(t.config, t.time_us) for t in store.trials(scope) if t.status is Status.CORRECT and t.time_us]
    return Neighbour(away, scope.problem, scope.device, winner.config, times)


def _recommended(store: Store, wanted: Scope) -> Iterator[tuple[float, Config]]:
    """Yield the configs of imported tables, each with its distance."""
    for suggestion in store.suggestions(wanted.kernel):
        if _is_comparable(suggestion.problem, wanted.problem):
            scope = Scope(suggestion.problem, "", suggestion.device, Clock.MEASURED, suggestion.origin, wanted.cores)
            yield scope_distance(scope, wanted), suggestion.config


def _unverified(store: Store, wanted: Scope, scopes: Iterable[Scope]) -> Iterator[tuple[float, Config]]:
    """Yield the fastest config of each scope without a verified one, with its distance."""
    for scope in scopes:
        result = store.result(scope)
        if result.winner is None and result.counts.get(Status.CORRECT):
            timed = (trial for trial in store.trials(scope) if trial.status is Status.CORRECT)
            yield scope_distance(scope, wanted), min(timed, key=lambda trial: trial.time_us or 0).config
