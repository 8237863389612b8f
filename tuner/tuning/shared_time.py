"""A time limit that several tunings share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["SharedTime"]

_LEAST_SECONDS = 1e-3
"""The share of a tuning for which no time is left: it times the default, so that each problem has a result."""


class SharedTime:
    """A limit in seconds for several tunings: each gets an equal share of the time that is left.

    So the time that a tuning leaves over goes to all later ones. A share limits the search alone; the last batch, the
    default and the final comparison end after it. The longest such ending so far is kept free for each later tuning,
    so that the total holds; only the last tuning may exceed it, by as much as its ending is longer than those before.
    """

    def __init__(self, seconds: float | None, tunings: int) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._waiting = tunings
        self._ending = 0.0

    @contextmanager
    def share(self, most: float | None = None) -> Iterator[float | None]:
        """Yield the seconds that the next tuning may search, at most `most`; None means no limit."""
        if self._end is None:
            yield most
            return
        began = time.monotonic()
        share = max(_LEAST_SECONDS, (self._end - began) / self._waiting - self._ending)
        self._waiting -= 1
        given = share if most is None else min(share, most)
        yield given
        self._ending = max(self._ending, time.monotonic() - began - given)
