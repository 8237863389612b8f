"""Limits on how many requests may wait for the same thing, in all and from one caller."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.api.service.shared_memory import SharedTable, digest_of
from tilewise.errors import Busy

__all__ = ["Places"]


class Places:
    """Places for `total` requests at once, of which one caller may hold `each`, over all processes of a server."""

    def __init__(self, total: int, each: int, what: str, retry_seconds: float) -> None:
        self._each, self._what, self._retry_seconds = each, what, retry_seconds
        self._table = SharedTable("=Qq", total)  # the caller, and the process that serves it

    def __len__(self) -> int:
        with self._table.locked():
            return sum(held != 0 for held in self._held())

    @contextmanager
    def one(self, caller: object) -> Iterator[None]:
        """Hold a place. Raises `Busy` if none is left, or none for this caller."""
        row = self._take(digest_of(caller))
        try:
            yield
        finally:
            with self._table.locked():
                self._table[row] = 0, 0

    def forget(self, process: int) -> None:
        """Free the places that a process held when it ended."""
        with self._table.locked():
            for row, (_, holder) in enumerate(self._table.all()):
                if holder == process:
                    self._table[row] = 0, 0

    def _take(self, digest: int) -> int:
        with self._table.locked():
            held = self._held()
            if 0 not in held:
                raise Busy(f"{len(held)} {self._what} are under way; try again later", self._retry_seconds)
            if held.count(digest) >= self._each:
                raise Busy(f"{self._each} {self._what} of yours are under way; wait for one", self._retry_seconds)
            row = held.index(0)
            self._table[row] = digest, os.getpid()
            return row

    def _held(self) -> list[float]:
        return [caller for caller, _ in self._table.all()]
