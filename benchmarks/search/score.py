"""Scores of searches: the best after each evaluation, compared with random search.

Random search is calculated, not run: its expected best is a sum over the order statistics of the recorded times. The
aggregate score is that of Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning",
Future Generation Computer Systems 159, 2024. At each point it is the share of the distance from calculated random
search to the optimum that the search has covered: 0 at random search and 1 at the optimum. The score is its mean over
the evaluations, or recorded seconds, in which random search covers 95% of the distance from the median to the optimum.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["RandomSearch", "aggregate", "half_width"]

Array = NDArray[np.float64]

_WAY = 0.95
_POINTS = 100


class RandomSearch:
    """Random search without repeats over recorded times (microseconds; None for a config that failed)."""

    def __init__(self, times: Sequence[float | None]) -> None:
        self._count = len(times)
        self._times = np.sort(np.array([t for t in times if t is not None], dtype=float))
        self.optimum = float(self._times[0])
        self.median = float(np.median(self._times))
        self._logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, self._count + 1)))])  # log factorials

    def shares(self, evaluations: int) -> Array:
        """Return, for each k, the chance that the best so far is the k-th fastest config; the rest to 1: none ran."""
        drawn = min(evaluations, self._count)
        ranks = np.arange(len(self._times) + 1)
        left = self._count - ranks  # configs that are not among the k fastest
        log_none = np.full(len(ranks), -np.inf)
        possible = left >= drawn
        total = self._logs[self._count] - self._logs[self._count - drawn]
        log_none[possible] = self._logs[left[possible]] - self._logs[left[possible] - drawn] - total
        none = np.exp(log_none)  # none of the k fastest was drawn
        return np.asarray(none[:-1] - none[1:])

    def fraction(self, evaluations: int) -> float:
        """Return the expected fraction of the optimum: optimum over best, 0 if nothing ran yet."""
        return float(self.shares(evaluations) @ (self.optimum / self._times))

    def best(self, evaluations: int) -> float:
        """Return the expected best time; the median counts if nothing ran yet."""
        shares = self.shares(evaluations)
        return float(shares @ self._times + (1 - shares.sum()) * self.median)

    def evaluations_to(self, margin: float) -> int:
        """Return the evaluations for an even chance of a config within the margin of the optimum."""
        good = int((self._times <= self.optimum * (1 + margin)).sum())
        return self._first(lambda n: self.shares(n)[:good].sum() >= 0.5)

    def cutoff(self) -> int:
        """Return the evaluations to cover 95% of the distance from the median to the optimum."""
        goal = self.optimum + (1 - _WAY) * (self.median - self.optimum)
        return self._first(lambda n: self.best(n) <= goal)

    def _first(self, holds: Callable[[int], bool]) -> int:
        low, high = 1, self._count
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle + 1, high)
        return low


def aggregate(
    courses: Sequence[Sequence[float]], steps: Sequence[Array], random: RandomSearch, seconds: float
) -> float:
    """Return the score of a search over its courses.

    A course holds the best times so far (inf before the first success), and `steps` the moment of each evaluation (1,
    2, ... or recorded seconds). `seconds` is the average duration of an evaluation in that unit. Points beyond the
    shortest course are left out, so that a search is scored within its budget.
    """
    end = min([random.cutoff() * seconds, *(float(moments[-1]) for moments in steps)])
    points = np.linspace(min(seconds, end), end, _POINTS)
    scores = []
    for point in points:
        reached = statistics.fmean(
            _at(best, moments, point, random.median) for best, moments in zip(courses, steps, strict=True)
        )
        drawn = round(point / seconds)
        expected = min(random.median, random.best(drawn)) if drawn else random.median
        scores.append((expected - reached) / (expected - random.optimum) if expected > random.optimum else 1.0)
    return statistics.fmean(scores)


def _at(best: Sequence[float], moments: Array, point: float, median: float) -> float:
    done = int(np.searchsorted(moments, point * (1 + 1e-12), side="right"))
    return min(median, best[done - 1]) if done and math.isfinite(best[done - 1]) else median


def half_width(values: Sequence[float]) -> float:
    """Return half of the 95% confidence interval of the mean, by the normal approximation."""
    return 1.96 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
