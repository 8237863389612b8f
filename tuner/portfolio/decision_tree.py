"""A small decision tree over dimensions, which gives each shape one of a few choices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.db.records import Dims

__all__ = ["Leaf", "Rule", "Split", "grow", "rule_from_json"]

_DEEPEST = 5
"""Most splits from the root to a leaf. This and the two below were chosen by hand and never ablated."""

_FEWEST = 2
"""Least number of shapes on each side of a split: a single one would be overfitted. Chosen by hand."""

_LEAST_GAIN = 0.02
"""Least saving of a split, in log time summed over shapes: 2% of the time of one shape. Chosen by hand."""


@dataclass(frozen=True, slots=True)
class Leaf:
    choice: int

    def pick(self, dims: Dims) -> int:
        return self.choice

    def to_json(self) -> dict[str, Any]:
        return {"choice": self.choice}


@dataclass(frozen=True, slots=True)
class Split:
    """A branch: `below` if the product of the dimensions called `names` is at most `limit`, else `above`."""

    names: tuple[str, ...]
    limit: int
    below: Rule
    above: Rule

    def pick(self, dims: Dims) -> int:
        product = math.prod(dims[name] for name in self.names)
        return (self.below if product <= self.limit else self.above).pick(dims)

    def to_json(self) -> dict[str, Any]:
        sides = {"below": self.below.to_json(), "above": self.above.to_json()}
        return {"product_of": list(self.names), "at_most": self.limit, **sides}


Rule = Leaf | Split


def rule_from_json(body: Mapping[str, Any], choices: int, names: Sequence[str], depth: int = 0) -> Rule:
    """Read the rule that `to_json` wrote; raise `ValueError` for an invalid one."""
    if not isinstance(body, Mapping) or depth > 2 * _DEEPEST:
        raise ValueError("a rule must be an object with a choice or two sides, at most a few levels deep")
    if "choice" in body:
        if type(body["choice"]) is not int or not 0 <= body["choice"] < choices:
            raise ValueError(f"a rule's choice is {body['choice']!r}; expected 0 to {choices - 1}")
        return Leaf(body["choice"])
    compared, limit = body.get("product_of"), body.get("at_most")
    if not isinstance(compared, list) or not compared or any(name not in names for name in compared):
        raise ValueError(f"a rule compares {compared!r}; expected some of {', '.join(names)}")
    if type(limit) is not int:
        raise ValueError(f"a rule's limit is {limit!r}; expected a whole number")
    below, above = (rule_from_json(body.get(side, {}), choices, names, depth + 1) for side in ("below", "above"))
    return Split(tuple(compared), limit, below, above)


def grow(shapes: Sequence[Dims], costs: Sequence[Sequence[float]], depth: int = _DEEPEST) -> Rule:
    """Grow a tree that gives each shape a choice of small cost. `costs` has one row per shape, one column per choice.

    It grows greedily from the root: at each node it takes the split that saves most, by one dimension or the product of
    all, until none saves enough.
    """
    totals = [math.fsum(column) for column in zip(*costs, strict=True)]
    choice = min(range(len(totals)), key=totals.__getitem__)
    split = _best_split(shapes, costs, totals[choice]) if depth else None
    if split is None:
        return Leaf(choice)
    names, limit = split
    sides: dict[bool, tuple[list[Dims], list[Sequence[float]]]] = {True: ([], []), False: ([], [])}
    for dims, row in zip(shapes, costs, strict=True):
        inside = sides[math.prod(dims[name] for name in names) <= limit]
        inside[0].append(dims)
        inside[1].append(row)
    below, above = grow(*sides[True], depth - 1), grow(*sides[False], depth - 1)
    return below if below == above else Split(names, limit, below, above)


def _best_split(
    shapes: Sequence[Dims], costs: Sequence[Sequence[float]], total: float
) -> tuple[tuple[str, ...], int] | None:
    best, found = total - _LEAST_GAIN, None
    for names in _features(shapes[0]):
        products = [math.prod(dims[name] for name in names) for dims in shapes]
        order = sorted(range(len(shapes)), key=products.__getitem__)
        lefts = _least_totals([costs[index] for index in order])
        rights = _least_totals([costs[index] for index in reversed(order)])
        for count in range(_FEWEST, len(order) - _FEWEST + 1):
            one, other = products[order[count - 1]], products[order[count]]
            cost = lefts[count - 1] + rights[len(order) - count - 1]
            if one < other and cost < best:
                best, found = cost, (names, max(one, math.isqrt(one * other)))
    return found


def _features(dims: Dims) -> list[tuple[str, ...]]:
    single: list[tuple[str, ...]] = [(name,) for name in dims]
    return [*single, tuple(dims)] if len(dims) > 1 else single


def _least_totals(costs: Sequence[Sequence[float]]) -> list[float]:
    """Return, for the first one, two, ... rows, the smallest column total."""
    sums = itertools.accumulate(costs, lambda total, row: [a + b for a, b in zip(total, row, strict=True)])
    return [min(row) for row in sums]
