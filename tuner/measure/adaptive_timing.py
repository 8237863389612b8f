"""How long to go on timing a config: until its interval is as narrow as the decision needs, or it is clearly behind.

Samples are looked at after 10, 20, 40, ... and nowhere between. Looking often and stopping when one likes what one sees
would make an interval hold less often than it says; here the allowed error is shared out among all looks beforehand, so
that the interval holds whichever of them was the last (Bonferroni's inequality: no assumption on how they hang
together).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from tilewise.tuner.measure.outcome import Timing
from tilewise.tuner.measure.robust_stats import median_interval, quantile

__all__ = ["ERROR", "LOOKS", "MARGIN", "PRECISION", "kept", "summarise", "time_adaptively"]

LOOKS = (10, 20, 40, 80, 160, 320)
"""Numbers of samples. Ten is the least of which one look's share of the error allows any interval at all."""

ERROR = 0.05
"""The chance that a stored interval misses its median."""

PRECISION = 0.01
"""Relative half-width at which a contender has been timed enough: the final comparison tells the rest apart."""

MARGIN = 0.02
"""A config is dropped when even the fast end of its interval is slower than the best by more than this. The best is
the luckiest of several, and the device may have changed since by what its reference does not show."""

KEPT = 32
"""Single times kept of a config, as many as the landscapes that others published hold."""


def time_adaptively(
    sample: Callable[[int], Sequence[float]],
    *,
    to_beat_us: float | None = None,
    precision: float = PRECISION,
    seconds: float = 1.0,
) -> Timing:
    """Time until one of: the interval's half-width is `precision` of the median; it is clearly behind `to_beat_us`
    (`dropped`); the last look; or `seconds` of wall time, after a look.

    `sample(count)` times `count` more runs and returns microseconds.
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
    """The timing of some samples in microseconds; `dropped` where they are clearly behind `to_beat_us`. Fewer than ten
    have no interval."""
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
    """Some of the single times, evenly spread over all."""
    step = max(1, len(samples) // KEPT)
    return tuple(round(s, 4) for s in samples[::step][:KEPT])
