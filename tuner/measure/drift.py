"""Detection of changes in the device: it throttles, or somebody else uses it too.

A reference that always does the same work is timed between candidates. While its time stays as it was at first, the
times of candidates can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewise.tuner.measure.adaptive_timing import MARGIN
from tilewise.tuner.measure.robust_stats import quantile

__all__ = ["DRIFT", "TOLERANCE", "Reference"]

DRIFT = "drift"
"""Key of an outcome's fact: the change of the reference and how often the config was timed again."""

TOLERANCE = MARGIN
"""Relative change below which the reference counts as unchanged. A reference that varies more by itself has a wider
limit."""

FIRST, CHECK = 40, 10
"""Samples that establish the reference's usual time, and samples of one check."""

_P20_TO_P80, _OF_MEDIAN = 1.683, 1.253
"""For a normal distribution: the distance of these quantiles in deviations, and a median's deviation over a mean's."""

_SURE = 5
"""Deviations of a check's median that are tolerated, so that no check of a long tuning fails by chance."""


class Reference:
    """Work that always takes the same time. `sample(count)` times it `count` times and returns microseconds."""

    def __init__(self, sample: Callable[[int], Sequence[float]]) -> None:
        self._sample = sample
        self.renew()

    def renew(self) -> None:
        """Take the reference's time on the device now as the usual."""
        samples = self._sample(FIRST)
        self._usual_us, p20, p80 = (quantile(samples, share) for share in (0.5, 0.2, 0.8))
        deviation = (p80 - p20) / _P20_TO_P80 / self._usual_us
        self._tolerance = max(TOLERANCE, _SURE * _OF_MEDIAN * deviation / math.sqrt(CHECK))

    def ratio(self) -> float | None:
        """Return the reference's time over the usual, or None if it takes the usual time.

        A time that looks different is checked a second time.
        """
        for _ in range(2):
            found = quantile(self._sample(CHECK), 0.5) / self._usual_us
            if abs(found - 1) <= self._tolerance:
                return None
        return found
