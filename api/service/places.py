"""Limits on how many requests may wait for the same thing, in all and from one caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.errors import Busy

__all__ = ["Places"]


class Places:
    """Places for `total` requests at once, of which one caller may hold `each`. Use it from one thread."""

    def __init__(self, total: int, each: int, what: str, retry_seconds: float) -> None:
        self._total, self._each = total, each
        self._what, self._retry_seconds = what, retry_seconds
        self._held: Counter[object] = Counter()

    def __len__(self) -> int:
        return self._held.total()

    @contextmanager
    def one(self, caller: object) -> Iterator[None]:
        """Hold a place. Raises `Busy` if none is left, or none for this caller."""
        if len(self) >= self._total:
            raise Busy(f"{self._total} {self._what} are under way; try again later", self._retry_seconds)
        if self._held[caller] >= self._each:
            raise Busy(f"{self._each} {self._what} of yours are under way; wait for one", self._retry_seconds)
        self._held[caller] += 1
        try:
            yield
        finally:
            self._held[caller] -= 1
            if not self._held[caller]:
                del self._held[caller]
