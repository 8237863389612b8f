"""Noticing that the device has changed: it throttles, or somebody else uses it too.

A reference that always does the same is timed between candidates. While it takes what it took at first, the times of
candidates can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewise.tuner.measure.adaptive_timing import MARGIN
from tilewise.tuner.measure.robust_stats import quantile

__all__ = ["DRIFT", "TOLERANCE", "Reference"]

DRIFT = "drift"
"""Among an outcome's facts: what the reference showed and how often the config was timed again."""

TOLERANCE = MARGIN
"""A reference off by less than this is as it was; where it varies more from the start, by as much as it did."""

FIRST, CHECK = 40, 10
"""Samples that say what the reference takes, and samples of a check."""

_P20_TO_P80, _OF_MEDIAN = 1.683, 1.253
"""Of a normal distribution: the distance of these quantiles in deviations, and a median's deviation by a mean's."""

_SURE = 5
"""Deviations of a check's median: of as many checks as a long tuning makes, none is off by chance."""


class Reference:
    """`sample(count)` times the reference so many times and returns microseconds."""

    def __init__(self, sample: Callable[[int], Sequence[float]]) -> None:
        self._sample = sample
        self._usual_us = self._tolerance = 0.0
        self.renew()

    def renew(self) -> None:
        """Take what the device does now as the usual."""
        samples = self._sample(FIRST)
        self._usual_us, p20, p80 = (quantile(samples, share) for share in (0.5, 0.2, 0.8))
        deviation = (p80 - p20) / _P20_TO_P80 / self._usual_us
        self._tolerance = max(TOLERANCE, _SURE * _OF_MEDIAN * deviation / math.sqrt(CHECK))

    def ratio(self) -> float | None:
        """How many times the usual the reference takes now; None where it takes the usual. What looks different is
        looked at twice."""
        for _ in range(2):
            found = quantile(self._sample(CHECK), 0.5) / self._usual_us
            if abs(found - 1) <= self._tolerance:
                return None
        return found
