"""The config of a space that is nearest to a config of another space."""

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

_PAIR_LIMIT = 300


def adapt_config(spec: KernelSpec, problem: Problem, target: Target, config: Config) -> Config | None:
    """Move each value of `config` to the nearest one that the problem's space allows.

    A value may depend on the shape (a block that gives every core one program), so another shape's space rarely holds
    all values of a winner. Where the moved values break a rule, one or two of them change, by as little as possible.
    Return None if that does not help or if the parameters differ. The space is not enumerated: this takes 0.1 to 2 ms.
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
    """Return the indices of the space's closest configs, each once; skip configs with other parameters."""
    indices = (closest_index(space, config) for config in configs)
    return list(dict.fromkeys(index for index in indices if index is not None))


def closest_index(space: Space, config: Config) -> int | None:
    """Return the index of the config or of the nearest one; None if it has other parameters."""
    if set(config) != set(space.domains):
        return None
    if (index := space.index(config)) is not None:
        return index
    total = np.zeros(len(space))
    for parameter, (name, values) in enumerate(space.domains.items()):
        total += np.array([value_distance(config[name], value) for value in values])[space.value_indices[:, parameter]]
    return int(np.argmin(total))


def value_distance(one: Value, other: Value) -> float:
    """Return the log ratio of two numbers (their difference if one is not positive), and 1 for other unequal values."""
    if one == other:
        return 0.0
    if _is_number(one) and _is_number(other):
        a, b = float(one), float(other)
        return abs(math.log(a / b)) if a > 0 and b > 0 else abs(a - b)
    return 1.0


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _changed(config: Config, ranges: Mapping[str, tuple[Value, ...]]) -> Iterator[Config]:
    """Yield configs that differ in one value, the smallest difference first, and then in two."""
    changes = [
        (value_distance(config[name], value), name, value) for name, values in ranges.items() for value in values
    ]
    changes = sorted((change for change in changes if change[0] > 0), key=_size)
    yield from ({**config, name: value} for _, name, value in changes)
    pairs = [(a[0] + b[0], a, b) for a, b in itertools.combinations(changes, 2) if a[1] != b[1]]
    for _, (_, name, value), (_, other_name, other_value) in heapq.nsmallest(_PAIR_LIMIT, pairs, key=_size):
        yield {**config, name: value, other_name: other_value}


def _size(change: tuple[Any, ...]) -> float:
    return float(change[0])
