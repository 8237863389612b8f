"""The result of trying one config: its timing, its outcome, and the verdict on its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewise.db.records import Status

__all__ = ["FAULTS", "LAST_LINES", "Outcome", "Timing", "Verdict"]

FAULTS = "faults"
"""Key of an outcome's fact: how many processes the config has cost. A config that cost two is not tried again."""

LAST_LINES = "last_lines"
"""Key of an outcome's fact: the last lines that a process printed before it ended."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Device time of one launch, in microseconds, over `samples` repetitions (1 on a modelled clock).

    A modelled time has no spread, so its `p20_us`, `p80_us` and the ends of its interval are None. `times_us` keeps
    single repetitions in the order they were taken, evenly spread if there were many. The median lies between `low_us`
    and `high_us` with 95% confidence. `dropped` means that the config was clearly behind the best, so that its time is
    an estimate from few repetitions. `method` names the timing method, and `l2` is the state of the
    cache before each run (`L2State`).
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
    """The result of one config: a timing if `status` is `correct`, otherwise a one-line reason.

    `correct` here means compiled and timed; `verify` decides whether the output is right. `facts` are plain JSON
    values: `effective_options`, `on_chip_bits` (`required`, `available`), `pipes_us`, `bound_by`, ...
    """

    status: Status
    reason: str = ""
    timing: Timing | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing a config's output with the float64 reference.

    `error` is the largest absolute deviation divided by the reference's RMS, and `tolerance` its limit. `status` is the
    status of a trial that did not agree: the check itself may have failed, which says nothing about the values.
    `warnings` describe what a right program should not do although its results are right, such as reading outside a
    tensor what a mask throws away.
    """

    agreed: bool
    error: float
    tolerance: float
    reason: str = ""
    status: Status = Status.CORRECTNESS
    warnings: tuple[str, ...] = ()
