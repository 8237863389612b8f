"""`python -m tilewise.benchmarks.service.readers ADDRESS SECONDS KIND COUNT`: readers of a service, in a process of
their own; prints what they saw as JSON.

`light` readers look up stored problems, one after the other with pauses of 5 ms, and one asks `/readyz` four times a
second. `hostile` readers send the questions that cost a server most, without a pause, and leave early one time in four.
`half-open` ones send half of a request's head and then nothing; when the server
has closed their connection, they wait a second and do the same again.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from tilewise.benchmarks.common.many import DEVICE, KERNEL, shapes
from tilewise.db.records import Dims

__all__ = ["STORED"]

STORED = 1000
"""Problems in the database."""

_PAUSE_SECONDS, _READY_SECONDS, _REOPEN_SECONDS = 0.005, 0.25, 1.0
_PATIENCE_SECONDS = 120.0
_BATCH = 1000
_MATCHES = ("predicted", "portfolio", "nearest", "exact")


class _Reader:
    """A client with one connection at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._place = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, path: str, body: bytes = b"") -> int:
        """Send a request, read the whole answer and return its status, 0 if the connection broke."""
        try:
            if self._writer is None or self._reader is None:
                self._reader, self._writer = await asyncio.open_connection(*self._place)
            self._writer.write(_request(path, body))
            head = await self._reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await self._reader.readexactly(int(lengths[0].partition(b":")[2]))
        except (OSError, asyncio.IncompleteReadError):
            self.leave()
            return 0
        return int(head.split(b" ", 2)[1])

    async def send(self, data: bytes) -> None:
        """Send data on a new connection, wait until the server closes it, and then for a second."""
        with suppress(OSError):
            self._reader, self._writer = await asyncio.open_connection(*self._place)
            self._writer.write(data)
            await self._reader.read()
        self.leave()
        await asyncio.sleep(_REOPEN_SECONDS)

    def leave(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


def _request(path: str, body: bytes) -> bytes:
    head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: tiles\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _target(dims: Dims, match: str) -> str:
    return f"/v1/configs/{KERNEL}?M={dims['M']}&N={dims['N']}&device={DEVICE.replace(' ', '%20')}&match={match}"


async def _time(ask: Callable[[], Awaitable[int]], pause: float, end: float) -> dict[str, Any]:
    """Ask again and again; return the milliseconds of each answer, and the statuses."""
    times, statuses = list[float](), Counter[int]()
    while time.monotonic() < end:
        began = time.perf_counter()
        statuses[await asyncio.wait_for(ask(), _PATIENCE_SECONDS)] += 1
        times.append(1e3 * (time.perf_counter() - began))
        await asyncio.sleep(pause)
    return {"ms": times, "statuses": statuses}


async def _light(place: tuple[str, int], count: int, end: float) -> dict[str, Any]:
    drawn, stored = random.Random(1), shapes(STORED)

    def looking() -> Callable[[], Awaitable[int]]:
        reader = _Reader(*place)
        return lambda: reader.ask(_target(drawn.choice(stored), "exact"))

    ready = _Reader(*place)
    *looked, checked = await asyncio.gather(
        *(_time(looking(), _PAUSE_SECONDS, end) for _ in range(count)),
        _time(lambda: ready.ask("/readyz"), _READY_SECONDS, end),
    )
    times = sorted(ms for each in looked for ms in each["ms"])
    return {
        "look_ups": len(times),
        "p50_ms": round(times[len(times) // 2], 2),
        "p99_ms": round(times[int(len(times) * 0.99)], 2),
        "slowest_ms": round(times[-1], 2),
        "readyz_slowest_ms": round(max(checked["ms"]), 2),
        "statuses": _texts(sum((each["statuses"] for each in (*looked, checked)), Counter())),
    }


async def _hostile(place: tuple[str, int], count: int, end: float) -> dict[str, Any]:
    drawn = random.Random(2)

    def anywhere() -> Dims:
        return {"M": drawn.randint(1, 1 << 17), "N": drawn.randint(1, 1 << 17)}

    def batch(match: str) -> bytes:
        query = {"kernel": KERNEL, "device": DEVICE, "match": match}
        return json.dumps({"queries": [query | {"dims": anywhere()} for _ in range(_BATCH)]}).encode()

    async def attack() -> Counter[int]:
        reader, statuses = _Reader(*place), Counter[int]()
        while time.monotonic() < end:
            match = drawn.choice(_MATCHES)
            asked = (
                reader.ask("/v1/lookup", batch(match))
                if drawn.random() < 0.2
                else reader.ask(_target(anywhere(), match))
            )
            patience = drawn.choice((0.3, *3 * (end - time.monotonic() + 1.0,)))
            try:
                statuses[await asyncio.wait_for(asked, patience)] += 1
            except TimeoutError:
                reader.leave()
                statuses[-1] += 1
        return statuses

    found = await asyncio.gather(*(attack() for _ in range(count)))
    return {"statuses": _texts(sum(found, Counter()))}


async def _half_open(place: tuple[str, int], count: int, end: float) -> dict[str, Any]:
    async def open_again() -> int:
        opened = 0
        while time.monotonic() < end:
            opened += 1
            try:
                await asyncio.wait_for(_Reader(*place).send(b"GET / HTTP/1.1\r\nHost: "), end - time.monotonic())
            except TimeoutError:
                break
        return opened

    return {"connections": sum(await asyncio.gather(*(open_again() for _ in range(count))))}


def _texts(statuses: Counter[int]) -> dict[str, int]:
    names = {0: "connection closed", -1: "left"}
    return {names.get(status, str(status)): count for status, count in sorted(statuses.items())}


async def _run(address: str, seconds: float, kind: str, count: int) -> dict[str, Any]:
    url = urlsplit(address)
    assert url.hostname is not None and url.port is not None
    end = time.monotonic() + seconds
    readers = {"light": _light, "hostile": _hostile, "half-open": _half_open}[kind]
    return await readers((url.hostname, url.port), count, end)


if __name__ == "__main__":
    import uvloop

    address, seconds, kind, count = sys.argv[1:]
    print(json.dumps(uvloop.run(_run(address, float(seconds), kind, int(count)))))
