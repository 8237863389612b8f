"""Limits on connections, so that slow or many clients leave room for others.

A client has some seconds for the head of a request, must send the body and read the answer at a least rate, and may
keep a connection open between requests only while there are few. At the limit of open files the server could accept
nobody, so it closes waiting connections before: those of the address that has the most of them first.
"""

from __future__ import annotations

import asyncio
import math
import resource
from collections import Counter
from collections.abc import Collection
from typing import Protocol

__all__ = ["BODY_SECONDS", "HEAD_SECONDS", "READ_SECONDS", "Connection", "Connections", "most_connections"]

HEAD_SECONDS = 10.0
"""Time from the start of a connection, or of a request, to the end of the request's head."""

BODY_SECONDS = 30.0
"""Time without a part of the body. The whole of it may take as long and a second for each 1000 bytes."""

READ_SECONDS = 60.0
"""Time without room for more of an answer, because the client does not read it."""

_SWEEP_SECONDS = 0.5
_MOST_FILES = 1 << 16
_RESERVED = 128
"""Open files for other than connections: databases, processes, listeners."""

_SHARE = 16
"""At the limit this part of all connections is closed at once."""


class Connection(Protocol):
    """A connection as far as its limits depend on it."""

    deadline: float
    """Time of the event loop by which its client has to do something; infinite while the server has to."""

    @property
    def address(self) -> str:
        """The address of its client."""

    @property
    def is_new(self) -> bool:
        """Return whether it had no whole request yet."""

    def expire(self) -> None:
        """End it because its client was too slow."""

    def drop(self) -> None:
        """End it at once to make room."""


def most_connections() -> int:
    """Raise this process's limit of open files as far as allowed; return how many connections fit below it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else soft
    return max(files - _RESERVED, files // 2)


class Connections:
    """At most `most` connections. Use it from the event loop's thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def add(self, connection: Connection) -> None:
        """Count a new connection; drop others to make room, or this one if the server works for all others."""
        if len(self._open) >= self._most and not self._make_room():
            connection.drop()
            return
        self._open.add(connection)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._expire)

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)

    def _make_room(self) -> bool:
        waiting = [connection for connection in self._open if connection.deadline < math.inf]
        for connection in _to_drop(waiting, max(1, self._most // _SHARE)):
            self.discard(connection)
            connection.drop()
        return bool(waiting)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [connection for connection in self._open if connection.deadline < now]:
            connection.deadline = math.inf
            connection.expire()
        self._sweep = loop.call_later(_SWEEP_SECONDS, self._expire) if self._open else None


def _to_drop(waiting: Collection[Connection], count: int) -> list[Connection]:
    """Return those of the addresses that have the most: without a request so far first, then by age."""
    of_address = Counter(connection.address for connection in waiting)
    return sorted(waiting, key=lambda one: (-of_address[one.address], not one.is_new, one.deadline))[:count]
