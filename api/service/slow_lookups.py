"""Look-ups that take longer than a seek, in processes of their own, so that they cannot hold up the others.

A lane is a pool of such processes with a bounded queue. The quick one answers within milliseconds: misses, neighbours,
and batches, of which it works 50 ms at a time. The slow one has the portfolios and predictions, which take up to
seconds. What a lane finds is kept until the next write; the same question from many clients is one call; a call that
nobody waits for any more is dropped from the queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tilewise.api.service.answer_cache import AnswerCache
from tilewise.api.service.answers import Found, LookupRequest
from tilewise.api.service.places import Places
from tilewise.errors import Busy, TilewiseError, Unavailable
from tilewise.kernels import registry
from tilewise.tuner.lookup.resolve import NotTuned
from tilewise.tuner.workers.supervisor import Supervisor
from tilewise.tuner.workers.worker import WorkerError, WorkerFailed, WorkerPool

__all__ = ["SlowLookups"]

_QUICK_PLACES, _SLOW_PLACES = 256, 32
"""Calls of a lane that run or wait; half of them may be one caller's. A slow call takes about a second."""

_CALL_SECONDS = 60.0
"""Time of one call, after which its process is replaced; the first portfolio of a kernel takes seconds."""

_REFUSAL_SECONDS = 1.0
"""Delay of a refusal. A client that asks again at once would otherwise keep the server busy with refusals."""

_MOST_KEPT = 10_000
"""Answers kept, of about 2 kB each."""

_log = logging.getLogger(__name__)

_Key = tuple[str, str, str | None]


class SlowLookups:
    """Both lanes, and the answers kept from them. Use it from the event loop's thread; processes start when needed.

    It is one of so many `processes` of a server, which divide places and processes among them.
    """

    def __init__(self, url: str, answer_cache: AnswerCache, supervisor: Supervisor, processes: int) -> None:
        self._context, self._answer_cache = (url, registry.own_places()), answer_cache
        cores = len(os.sched_getaffinity(0))
        quick, slow = (max(1, size // processes) for size in (1 if cores < 8 else 2, min(cores // 4, 4)))
        self._quick = _Lane(supervisor, quick, _QUICK_PLACES // processes, "look-ups that search")
        self._slow = _Lane(supervisor, slow, _SLOW_PLACES // processes, "predictions")
        self._kept: OrderedDict[_Key, tuple[int, Found | NotTuned]] = OrderedDict()
        self._flights: dict[_Key, _Flight] = {}

    @property
    def waiting(self) -> int:
        """Number of calls that run or wait."""
        return len(self._quick.places) + len(self._slow.places)

    async def prepare(self) -> None:
        """Build the shape indexes of the quick lane, so that no look-up has to wait for them."""
        await self._quick.call("the server", *self._context, "prepare")

    async def one(self, caller: object, request: LookupRequest) -> Found:
        """Answer one request. Raises `NotTuned`, `Busy` if too many wait, and what `relaxed` raises."""
        key = (request.question.key, request.match.value, request.toolchain)
        self._answer_cache.follow()
        kept = self._kept.get(key)
        if kept is not None and kept[0] == self._answer_cache.generation:
            outcome = kept[1]
        else:
            outcome = await self._join(key, lambda: self._find(caller, key, request))
        if isinstance(outcome, NotTuned):
            raise outcome.with_traceback(None)
        return outcome

    async def part(self, caller: object, body: bytes, start: int) -> Any:
        """Return what `lookup_process` finds of a batch from its query number `start` on, within one turn."""
        return await self._quick.call(caller, *self._context, "batch", body, start)

    def close(self) -> None:
        """End the processes; calls under way fail. It waits for them, so call it from a thread."""
        self._quick.close()
        self._slow.close()

    async def _find(self, caller: object, key: _Key, request: LookupRequest) -> Found | NotTuned:
        read_at = self._answer_cache.generation
        try:
            found = await self._quick.call(caller, *self._context, "one", request)
            if found is None:
                found = await self._slow.call(caller, *self._context, "one_by_any_means", request)
            outcome: Found | NotTuned = Found(*found)
        except NotTuned as error:
            outcome = error
        self._kept[key] = read_at, outcome
        self._kept.move_to_end(key)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return outcome

    async def _join(self, key: _Key, start: Callable[[], Awaitable[Found | NotTuned]]) -> Found | NotTuned:
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(start()))
            flight.task.add_done_callback(lambda _: self._land(key, flight))
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters:
                self._leave(key, flight)  # whoever comes now must not join what is being cancelled
                flight.task.cancel()

    def _land(self, key: _Key, flight: _Flight) -> None:
        self._leave(key, flight)
        if not flight.task.cancelled():
            flight.task.exception()  # so that asyncio does not report one whose waiters have all left

    def _leave(self, key: _Key, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


@dataclass
class _Flight:
    """A call that several requests may wait for."""

    task: asyncio.Future[Found | NotTuned]
    waiters: int = 0


class _Lane:
    def __init__(self, supervisor: Supervisor, size: int, places: int, what: str) -> None:
        self._pool = WorkerPool(supervisor, size)
        self.places = Places(max(2, places), max(1, places // 2), what, _REFUSAL_SECONDS)

    async def call(self, caller: object, *arguments: Any) -> Any:
        """Call the process. Raises the error that it returns, `Busy` after a second, or `Unavailable`."""
        try:
            with self.places.one(caller):
                outcome = await asyncio.wrap_future(self._pool.submit(*arguments, timeout=_CALL_SECONDS))
        except Busy:
            await asyncio.sleep(_REFUSAL_SECONDS)
            raise
        except WorkerFailed:  # a defect, which the middleware reports
            raise
        except WorkerError as error:
            _log.error("the process of a look-up: %s", error)
            raise Unavailable("the look-up was given up; the server's log says why") from error
        if isinstance(outcome, TilewiseError):
            raise outcome
        return outcome

    def close(self) -> None:
        self._pool.close()
