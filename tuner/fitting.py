"""A config that won for one shape, made one of another shape's space."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, Value
from tilewise.tuner.space import broken_rule, domains
from tilewise.tuner.transfer import gap

__all__ = ["fitted"]

_MOST_PAIRS = 300


def fitted(spec: KernelSpec, problem: Problem, target: Target, config: Config) -> Config | None:
    """The config of the problem's space that is made from `config` by moving each value to the nearest there is.

    A value may depend on the shape (a block that gives every core one program), so that a winner is rarely, value for
    value, in another shape's space. Where the moved values break a rule, one or two of them are changed, as little
    as will do; None where that does not help. The space is not enumerated: this takes 0.1 to 2 ms.
    """
    ranges = domains(spec, problem, target)
    if ranges.keys() != config.keys():
        return None
    moved = {name: min(values, key=lambda value: gap(config[name], value)) for name, values in ranges.items()}
    if spec.configs is not None:
        return moved if moved in spec.configs(problem, target) else None
    if not broken_rule(spec, problem, target, moved):
        return moved
    repaired = (changed for changed in _changed(moved, ranges) if not broken_rule(spec, problem, target, changed))
    return next(repaired, None)


def _changed(config: Config, ranges: Mapping[str, tuple[Value, ...]]) -> Iterator[Config]:
    """Configs that differ in one value, those that differ least first, and then in two."""
    changes = [(gap(config[name], value), name, value) for name, values in ranges.items() for value in values]
    changes = sorted((change for change in changes if change[0] > 0), key=_size)
    yield from ({**config, name: value} for _, name, value in changes)
    pairs = [(a[0] + b[0], a, b) for a, b in itertools.combinations(changes, 2) if a[1] != b[1]]
    for _, (_, name, value), (_, other, its) in heapq.nsmallest(_MOST_PAIRS, pairs, key=_size):
        yield {**config, name: value, other: its}


def _size(change: tuple[Any, ...]) -> float:
    return float(change[0])
