"""What is known from elsewhere: stored winners of other shapes, dtypes and devices, as configs of the space at hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewise.db.records import Config, Scope, Status, Value
from tilewise.db.store import Store
from tilewise.kernels.spec import Problem
from tilewise.tuner.space import Space

__all__ = ["MOST", "Neighbour", "closest", "distance", "gap", "mapped", "neighbours", "winners"]

_OTHER_DTYPE, _OTHER_DEVICE, _OTHER_CLOCK, _OTHER_SOURCE = 0.7, 1.5, 0.3, 0.3
"""How far a result is away for being of another dtype, device, clock or version of the kernel, beside a dimension that
is e times as large (1). Halving the dtype halves the bytes, as halving a dimension does (log 2 = 0.7)."""

MOST = 4
"""Neighbours that count; those nearest."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What is known of another shape, dtype or device: the config that won, and the microseconds of all that ran."""

    away: float
    problem: Problem
    device: str
    winner: Config
    times: Sequence[tuple[Config, float]]


def neighbours(store: Store, wanted: Scope, most: int = MOST) -> list[Neighbour]:
    """The nearest other scopes of the kernel in which something won, the nearest first."""
    if not wanted.dims:  # a recorded landscape: another scope of it would be its own answer
        return []
    others = [scope for scope in store.scopes(wanted.kernel) if scope.key != wanted.key]
    near = sorted(
        (scope for scope in others if scope.dims.keys() == wanted.dims.keys()), key=lambda s: distance(s, wanted)
    )
    found = (_neighbour(store, scope, distance(scope, wanted)) for scope in near[: 4 * most])
    return list(itertools.islice((neighbour for neighbour in found if neighbour), most))


def _neighbour(store: Store, scope: Scope, away: float) -> Neighbour | None:
    if (winner := store.result(scope).winner) is None:
        return None
    times = [(t.config, t.time_us) for t in store.trials(scope) if t.status is Status.CORRECT and t.time_us]
    return Neighbour(away, Problem(scope.kernel, scope.dims, scope.dtype), scope.device, winner.config, times)


def winners(known: Iterable[Neighbour], space: Space) -> list[int]:
    """The configs of the space, by number, that are closest to what won for the neighbours."""
    return mapped(space, (neighbour.winner for neighbour in known))


def mapped(space: Space, configs: Iterable[Config]) -> list[int]:
    """The closest configs of the space, by number, each once; a config of other parameters has none."""
    numbers = (closest(space, config) for config in configs)
    return list(dict.fromkeys(number for number in numbers if number is not None))


def distance(one: Scope, other: Scope) -> float:
    """How different two scopes of a kernel are: the sum over dimensions of log ratios, and something for all else."""
    sizes = sum(abs(math.log(one.dims[name] / other.dims[name])) for name in one.dims)
    return sizes + sum(
        away
        for away, same in (
            (_OTHER_DTYPE, one.dtype == other.dtype),
            (_OTHER_DEVICE, one.device == other.device),
            (_OTHER_CLOCK, one.clock == other.clock),
            (_OTHER_SOURCE, one.source_hash == other.source_hash),
        )
        if not same
    )


def closest(space: Space, config: Config) -> int | None:
    """The number of the config itself, or of the one nearest to it; None where the parameters are others.

    Numbers differ by their log ratio (or by their difference, where one is not positive), other values by 1.
    """
    if set(config) != set(space.domains):
        return None
    if (number := space.index(config)) is not None:
        return number
    total = np.zeros(len(space))
    for parameter, (name, values) in enumerate(space.domains.items()):
        total += np.array([gap(config[name], value) for value in values])[space.codes[:, parameter]]
    return int(np.argmin(total))


def gap(one: Value, other: Value) -> float:
    if one == other:
        return 0.0
    if _is_number(one) and _is_number(other):
        a, b = float(one), float(other)
        return abs(math.log(a / b)) if a > 0 and b > 0 else abs(a - b)
    return 1.0


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
