"""Adaptive timing of a config: until its interval is as narrow as the decision needs, or it is clearly behind.

Samples are looked at after 10, 20, 40, ... and nowhere in between. Looking often and stopping at a favourable result
would make an interval hold less often than it claims. So the allowed error is divided among all looks in advance, and
the interval holds whichever look was the last (Bonferroni's inequality, which does not assume independent looks).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from tilewise.tuner.measure.outcome import Timing
from tilewise.tuner.measure.robust_stats import median_interval, quantile

__all__ = ["ERROR", "LOOKS", "MARGIN", "PRECISION", "kept", "summarise", "time_adaptively"]

LOOKS = (10, 20, 40, 80, 160, 320)
"""Sample counts of the looks. Ten is the fewest for which one look's share of the error allows an interval at all."""

ERROR = 0.05
"""The probability that a stored interval misses its median."""

PRECISION = 0.01
"""Relative half-width at which a candidate has been timed enough. The rebenchmark separates closer candidates."""

MARGIN = 0.02
"""A config is dropped when even the fast end of its interval is slower than the best by more than this fraction. The
best is the luckiest of several, and the device may have changed since by less than its reference shows."""

KEPT = 32
"""Single times kept per config, as many as in the landscapes that others have published."""


def time_adaptively(
    sample: Callable[[int], Sequence[float]],
    *,
    to_beat_us: float | None = None,
    precision: float = PRECISION,
    seconds: float = 1.0,
) -> Timing:
    """Time a config, stopping at the first look that shows enough.

    That is a look at which the interval's half-width is `precision` of the median, the config is clearly behind
    `to_beat_us` (`dropped`), or `seconds` of wall time are over; or else the last look. `sample(count)` times `count`
    more runs and returns microseconds.
    """
    samples: list[float] = []
    end = time.monotonic() + seconds
    for look in LOOKS:
        samples += sample(look - len(samples))
        timing = summarise(samples, to_beat_us)
        assert timing.low_us is not None and timing.high_us is not None, "ten samples have an interval"
        narrow = timing.high_us - timing.low_us <= 2 * precision * timing.time_us
        if timing.dropped or narrow or time.monotonic() >= end:
            break
    return timing


def summarise(samples: Sequence[float], to_beat_us: float | None = None) -> Timing:
    """Return the timing of samples in microseconds, `dropped` if clearly behind `to_beat_us`. Fewer than ten have no
    interval."""
    interval = median_interval(samples, ERROR / len(LOOKS))
    known = math.isfinite(interval.low)
    return Timing(
        interval.median,
        quantile(samples, 0.2),
        quantile(samples, 0.8),
        len(samples),
        kept(samples),
        low_us=interval.low if known else None,
        high_us=interval.high if known else None,
        dropped=to_beat_us is not None and interval.low > to_beat_us * (1 + MARGIN),
    )


def kept(samples: Sequence[float]) -> tuple[float, ...]:
    """Return at most `KEPT` of the single times, evenly spread over all."""
    step = max(1, len(samples) // KEPT)
    return tuple(round(s, 4) for s in samples[::step][:KEPT])
