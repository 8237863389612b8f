"""Penalties from the expected time of a launch: the factors by which it grows as one effect more is counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

__all__ = ["OVERFLOW", "growth", "on_chip_penalty", "time_by_effects"]

OVERFLOW = 4.0
"""Least penalty of tiles estimated beyond on-chip memory, which are probably refused; it grows with the overflow.
Chosen by hand."""

_Effects = TypeVar("_Effects", bound=NamedTuple)


def time_by_effects(effects: type[_Effects], time: Callable[[_Effects], float]) -> dict[str, float]:
    """Return a penalty for each field of `effects`, all of which are truth values.

    `time` gives the expected time with the effects that are true. They are counted one after the other.
    """
    names = effects._fields
    steps = (effects._make(index < count for index in range(len(names))) for count in range(len(names) + 1))
    return growth(names, map(time, steps))


def growth(names: Iterable[str], times: Iterable[float]) -> dict[str, float]:
    """Return the factor, 1 or more, by which each of `times` is longer than all before it, from the second on."""
    longest: Iterator[float] = itertools.accumulate(times, max)
    return {name: after / before for name, (before, after) in zip(names, itertools.pairwise(longest), strict=True)}


def on_chip_penalty(share: float) -> float:
    """Return the penalty of tiles that take this share of a memory on chip."""
    return OVERFLOW * share if share > 1 else 1.0
