"""A time limit that several tunings share."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

__all__ = ["SharedTime"]

_LEAST_SECONDS = 1e-3
"""The share of a tuning for which no time is left: it times the default, so that each problem has a result."""


class SharedTime:
    """A limit in seconds for several tunings: each gets an equal share of the time that is left.

    So the time that a tuning leaves over goes to all later ones. A share limits the search alone; the last batch, the
    default and the final comparison end after it. The median of such endings so far is kept free for each later tuning,
    so that the total holds if later ones are like those before; not the longest, since one large problem would take
    the time of all small ones after it. Of tunings of which several run `at_once`, each has more time. Thread-safe.
    """

    def __init__(self, seconds: float | None, tunings: int, *, at_once: int = 1) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._waiting, self._at_once = tunings, at_once
        self._endings: list[float] = []
        self._lock = threading.Lock()

    @contextmanager
    def share(self, most: float | None = None) -> Iterator[float | None]:
        """Yield the seconds that the next tuning may search, at most `most`; None means no limit."""
        if self._end is None:
            yield most
            return
        began = time.monotonic()
        ending = median(self._endings) if self._endings else 0.0
        with self._lock:
            turns = max(1.0, self._waiting / self._at_once)
            share = max(_LEAST_SECONDS, (self._end - began) / turns - ending)
            self._waiting -= 1
        given = share if most is None else min(share, most)
        yield given
        self._endings.append(max(0.0, time.monotonic() - began - given))
