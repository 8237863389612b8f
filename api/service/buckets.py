"""Limits on the requests per minute of each caller, over all processes of a server."""

from __future__ import annotations

import math
import time

from tilewise.api.service.shared_memory import SharedTable, digest_of
from tilewise.errors import Busy

__all__ = ["Buckets"]

_SETS, _WAYS = 640, 16
"""Callers that are remembered; each has its place in one of the sets."""


class Buckets:
    """A limit on each caller's requests per minute, at once or spread out; callers seen longest ago are forgotten."""

    def __init__(self, a_minute: int) -> None:
        self._limit, self._rate = float(a_minute), a_minute / 60
        self._table = SharedTable("=Qdd", _SETS * _WAYS)  # caller, requests left, and when that was

    def take(self, caller: object) -> None:
        """Count a request of `caller`. Raises `Busy` if the caller has none left."""
        now, digest = time.monotonic(), digest_of(caller)
        with self._table.locked():
            left = self._left(digest, now)
            self._table[self._place(digest)] = digest, max(left - 1, left if left < 1 else 0.0), now
        if left < 1:
            raise Busy("too many requests; slow down", (1 - left) / self._rate)

    def headers(self, caller: object) -> list[tuple[bytes, bytes]]:
        """Return the headers that tell `caller` the limit, how many requests are left and in how many seconds all are,
        in the form of the IETF's draft "RateLimit header fields for HTTP"."""
        with self._table.locked():
            left = self._left(digest_of(caller), time.monotonic())
        seconds = math.ceil((self._limit - left) / self._rate)
        return [
            (b"ratelimit-policy", b'"writes";q=%d;w=60' % self._limit),
            (b"ratelimit", b'"writes";r=%d;t=%d' % (left, seconds)),
        ]

    def _left(self, digest: int, now: float) -> float:
        known, left, then = self._table[self._place(digest)]
        return min(self._limit, left + (now - then) * self._rate) if known == digest else self._limit

    def _place(self, digest: int) -> int:
        """Return the row of a caller, or the one to forget for it: a free one, or the one seen longest ago."""
        rows = range(start := digest % _SETS * _WAYS, start + _WAYS)
        for row in rows:
            if self._table[row][0] == digest:
                return row
        return min(rows, key=lambda row: self._table[row][2])
