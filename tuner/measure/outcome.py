"""What became of one config: its timing, its outcome, and the verdict on its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewise.db.records import Status

__all__ = ["FAULTS", "LAST_LINES", "Outcome", "Timing", "Verdict"]

FAULTS = "faults"
"""Among an outcome's facts: how many processes the config has cost. One that cost two is not tried again."""

LAST_LINES = "last_lines"
"""Among an outcome's facts: the last that a process printed before it ended."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Device time of one launch, in microseconds, over `samples` repetitions (1 on a modelled clock).

    A modelled time has no spread, so its `p20_us`, `p80_us` and the ends of its interval are None. `times_us` are
    single repetitions to keep, in the order they were taken; of many, some evenly spread ones. The median lies between
    `low_us` and `high_us` with 95% confidence. `dropped` says that the config was clearly behind the best, so that its
    time is an estimate from few repetitions. `method` is how the time was taken, `l2` whether the cache was `cold` or
    `warm` before each run.
    """

    time_us: float
    p20_us: float | None = None
    p80_us: float | None = None
    samples: int = 1
    times_us: tuple[float, ...] = ()
    low_us: float | None = None
    high_us: float | None = None
    dropped: bool = False
    method: str = ""
    l2: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one config: a timing where `status` is `correct`, a one-line reason where it is not.

    `correct` here means compiled and timed; whether the output is right is `verify`'s to say. `facts` are plain JSON
    values: `effective_options`, `on_chip_bits` (`required`, `available`), `pipes_us`, `bound_by`, ...
    """

    status: Status
    reason: str = ""
    timing: Timing | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a config's output agreed with the float64 reference.

    `error` is the largest absolute deviation divided by the reference's RMS, `tolerance` what was allowed. `status` is
    what becomes of a trial that did not agree: the check itself may have failed, which says nothing of the values.
    """

    agreed: bool
    error: float
    tolerance: float
    reason: str = ""
    status: Status = Status.CORRECTNESS
