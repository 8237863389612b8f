"""Configs that others recommend for a kernel: imported tables, and times that nobody verified. Searches try them early.

They say where to look, not what is fast: what is tried of them is measured and verified as any other config.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilewise.db.records import Clock, Config, Scope, Status
from tilewise.db.store import Store
from tilewise.tuner.space import Space
from tilewise.tuner.transfer import distance, mapped

__all__ = ["with_suggestions"]

_LOOKED_AT = 16
_MOST = 2
"""Recommendations that a search tries early."""


def with_suggestions(
    store: Store, wanted: Scope, space: Space, won: Sequence[int], default: Config | None = None
) -> list[int]:
    """The configs that `won` elsewhere, by number, and after the first of them those recommended nearest to `wanted`.

    What a recommendation leaves out (tables know few parameters) is as in the spec's `default`.
    """
    alike = [scope for scope in store.scopes(wanted.kernel) if _is_alike(scope, wanted) and scope.key != wanted.key]
    nearest = sorted(alike, key=lambda scope: distance(scope, wanted))[:_LOOKED_AT]
    found = [*_tables(store, wanted), *_unverified(store, wanted, nearest)]
    near = sorted(found, key=lambda recommended: recommended[0])
    complete = [{**(default or {}), **config} for _, config in near]
    told = [number for number in mapped(space, complete) if number not in won]
    return [*won[:1], *told[:_MOST], *won[1:]]


def _tables(store: Store, wanted: Scope) -> Iterator[tuple[float, Config]]:
    """How far away each recommendation is for, and its config."""
    for told in store.suggestions(wanted.kernel):
        scope = Scope(told.kernel, "", told.dims, told.dtype, told.device, Clock.MEASURED, told.origin, wanted.cores)
        if _is_alike(scope, wanted):
            yield distance(scope, wanted), told.config


def _unverified(store: Store, wanted: Scope, scopes: Iterable[Scope]) -> Iterator[tuple[float, Config]]:
    """The fastest of each scope in which nobody verified anything."""
    for scope in scopes:
        result = store.result(scope)
        if result.winner is None and result.counts.get(Status.CORRECT):
            timed = (trial for trial in store.trials(scope) if trial.status is Status.CORRECT)
            yield distance(scope, wanted), min(timed, key=lambda trial: trial.time_us or 0).config


def _is_alike(scope: Scope, wanted: Scope) -> bool:
    return bool(wanted.dims) and scope.dims.keys() == wanted.dims.keys()
