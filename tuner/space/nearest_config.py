"""The nearest valid config: a config of one space made one of another."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, Value
from tilewise.tuner.space.search_space import Space, broken_rule, domains

__all__ = ["adapt_config", "closest_index", "closest_indices", "value_distance"]

_MOST_PAIRS = 300


def adapt_config(spec: KernelSpec, problem: Problem, target: Target, config: Config) -> Config | None:
    """The config of the problem's space that is made from `config` by moving each value to the nearest there is.

    A value may depend on the shape (a block that gives every core one program), so that a winner is rarely, value for
    value, in another shape's space. Where the moved values break a rule, one or two of them are changed, as little
    as will do; None where that does not help. The space is not enumerated: this takes 0.1 to 2 ms.
    """
    ranges = domains(spec, problem, target)
    if ranges.keys() != config.keys():
        return None
    moved = {
        name: min(values, key=lambda value: value_distance(config[name], value)) for name, values in ranges.items()
    }
    if spec.configs is not None:
        return moved if moved in spec.configs(problem, target) else None
    if not broken_rule(spec, problem, target, moved):
        return moved
    repaired = (changed for changed in _changed(moved, ranges) if not broken_rule(spec, problem, target, changed))
    return next(repaired, None)


def closest_indices(space: Space, configs: Iterable[Config]) -> list[int]:
    """Indices of the space's closest configs, each once; a config of other parameters has none."""
    indices = (closest_index(space, config) for config in configs)
    return list(dict.fromkeys(index for index in indices if index is not None))


def closest_index(space: Space, config: Config) -> int | None:
    """Index of the config itself, or of the one nearest to it; None where the parameters are others."""
    if set(config) != set(space.domains):
        return None
    if (index := space.index(config)) is not None:
        return index
    total = np.zeros(len(space))
    for parameter, (name, values) in enumerate(space.domains.items()):
        total += np.array([value_distance(config[name], value) for value in values])[space.value_indices[:, parameter]]
    return int(np.argmin(total))


def value_distance(one: Value, other: Value) -> float:
    """Numbers differ by their log ratio (or by their difference, where one is not positive), other values by 1."""
    if one == other:
        return 0.0
    if _is_number(one) and _is_number(other):
        a, b = float(one), float(other)
        return abs(math.log(a / b)) if a > 0 and b > 0 else abs(a - b)
    return 1.0


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _changed(config: Config, ranges: Mapping[str, tuple[Value, ...]]) -> Iterator[Config]:
    """Configs that differ in one value, those that differ least first, and then in two."""
    changes = [
        (value_distance(config[name], value), name, value) for name, values in ranges.items() for value in values
    ]
    changes = sorted((change for change in changes if change[0] > 0), key=_size)
    yield from ({**config, name: value} for _, name, value in changes)
    pairs = [(a[0] + b[0], a, b) for a, b in itertools.combinations(changes, 2) if a[1] != b[1]]
    for _, (_, name, value), (_, other, its) in heapq.nsmallest(_MOST_PAIRS, pairs, key=_size):
        yield {**config, name: value, other: its}


def _size(change: tuple[Any, ...]) -> float:
    return float(change[0])
