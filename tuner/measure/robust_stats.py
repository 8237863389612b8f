"""Statistics of times without an assumed distribution: intervals of a median, and paired comparisons.

Times are skewed, have outliers and come in steps. So a median's interval lies between two order statistics: it misses
the median only if too many samples fell on one side, whose probability is that of fair coin flips. Comparisons use
pairs taken close together, which drift affects alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "chances_of_being_fastest", "median_interval", "quantile", "ratio_interval"]

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the ends of its interval; an end is infinite if the samples are too few."""

    median: float
    low: float
    high: float


def quantile(samples: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation between the order statistics."""
    ordered = sorted(samples)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def median_interval(samples: Sequence[float], error: float = 0.05) -> Interval:
    """Return an interval that misses the distribution's median with a probability of at most `error`.

    Half of the error is on either side. It holds for any distribution and needs at least one sample.
    """
    ordered, rank = sorted(samples), _rank(len(samples), error)
    median = quantile(ordered, 0.5)
    if rank == 0:
        return Interval(median, -math.inf, math.inf)
    return Interval(median, ordered[rank - 1], ordered[-rank])


@lru_cache(maxsize=1024)
def _rank(count: int, error: float) -> int:
    """Return the k for which the k-th smallest and k-th largest of `count` samples enclose the median; 0 if none does.

    The median lies below the k-th smallest when fewer than k of `count` fair coins show heads.
    """
    allowed = error / 2 * 2**count if count < 1000 else int(error / 2 * 2**53) << (count - 53)
    below, rank = 0, 0
    while rank < count // 2 and (below := below + math.comb(count, rank)) <= allowed:
        rank += 1
    return rank


def ratio_interval(times: Sequence[float], others: Sequence[float], error: float = 0.05) -> Interval:
    """Return the interval of the median ratio of `times` to `others`, pair by pair."""
    return median_interval([a / b for a, b in zip(times, others, strict=True)], error)


def chances_of_being_fastest(rounds: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    """Return each column's probability of the smallest median; `rounds` has one row per round, one column per config.

    This is a bootstrap over whole rounds. Each row is first divided by its mean, so that common changes of a round's
    times cancel. Equal medians share the probability.
    """
    logs = np.log(rounds)
    logs -= logs.mean(axis=1, keepdims=True)
    count = len(logs)
    drawn = np.random.default_rng(seed).integers(count, size=(_RESAMPLES, count))
    medians = np.stack([np.median(column[drawn], axis=1) for column in logs.T], axis=1)
    first = medians <= medians.min(axis=1, keepdims=True) + 1e-12
    shares: NDArray[np.float64] = (first / first.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares
