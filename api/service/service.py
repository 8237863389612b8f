"""The state of the application while it runs: stores, answers in memory, metrics."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

from tilewise.api.service.answer_cache import Answer, AnswerCache
from tilewise.api.service.answers import exact
from tilewise.api.service.metrics import Metrics
from tilewise.errors import StoreError, TilewiseError, Unavailable

if TYPE_CHECKING:
    from tilewise.api.jobs.runner import Runner
    from tilewise.db.jobs import Jobs
    from tilewise.db.jobs import Request as JobRequest
    from tilewise.db.records import Question
    from tilewise.db.sql.sql_store import SqlStore
    from tilewise.db.tokens import Tokens
    from tilewise.tuner.lookup.store_source import StoreSource

__all__ = ["Options", "Service"]

P = ParamSpec("P")
T = TypeVar("T")

_READ_SECONDS, _WRITE_SECONDS = 0.2, 30.0
"""Time to wait for another process's lock on an SQLite file. Readers wait only if the whole file is locked; they wait
on the event loop, which answers no other request meanwhile."""

_TURN_SECONDS = 30.0
"""Time that a write or an export waits for earlier ones of this server."""

_WRITERS, _EXPORTS = 8, 4
"""Number at once; a database file has one writer."""

_QUIET_SECONDS = 0.2
"""Pause between the start and background work."""

_log = logging.getLogger(__name__)

_MAX_MISSES = 100
"""Number of waiting jobs at which misses add no more: anybody can cause misses."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the service. `answer_bytes` limits the answers kept in memory. With `tune_misses`, a look-up of a
    registered kernel that finds nothing becomes a job."""

    reads_open: bool = True
    writes_a_minute: int = 120
    run_jobs: bool = True
    tune_misses: bool = False
    answer_bytes: int = 256 << 20


class Service:
    """The running service, usable between `open` and `close`, which the application's lifespan calls."""

    store: SqlStore
    """For reading, also on the event loop."""
    writer: SqlStore
    """For writing, from threads; it waits longer for locks."""
    tokens: Tokens
    jobs: Jobs
    jobs_writer: Jobs
    answer_cache: AnswerCache
    _writing: asyncio.Semaphore
    _exporting: asyncio.Semaphore

    def __init__(self, store_url: str, options: Options) -> None:
        self._url, self.options = store_url, options
        self.reads_open = options.reads_open
        self.metrics = Metrics()
        self.metrics.gauge("tilewise_answers_kept", "Encoded answers in memory.", lambda: len(self.answer_cache))
        self.metrics.gauge(
            "tilewise_answers_bytes", "Size of the encoded answers in memory, in bytes.", lambda: self.answer_cache.size
        )
        self._devices: dict[str, str] | None = None
        self._finding, self._indexing = threading.Lock(), threading.Lock()
        self._source: StoreSource | None = None
        self._misses: set[asyncio.Task[None]] = set()
        self.streams = 0
        """Number of open event streams."""
        self.stopping = False
        self._closing = threading.Event()
        self._runner: Runner | None = None
        self.recalled = self.metrics.answers.labels("exact", "memory")
        self._found = self.metrics.answers.labels("exact", "database")

    @property
    def source(self) -> StoreSource:
        """The store with indexes for look-ups that may relax."""
        with self._indexing:
            if self._source is None:
                from tilewise.tuner.lookup.store_source import StoreSource  # would slow each start by 0.2 s

                self._source = StoreSource(self.store)
            return self._source

    async def open(self) -> None:
        """Open the stores and start the job runner. Raises `StoreError`."""
        from tilewise.db.jobs import Jobs
        from tilewise.db.sql.database import waiting
        from tilewise.db.sql.sql_store import open_store
        from tilewise.db.tokens import Tokens

        self.writer = open_store(waiting(self._url, _WRITE_SECONDS), create=True)
        self.store = open_store(waiting(self._url, _READ_SECONDS), create=False)
        self._source = None
        self._writing = asyncio.Semaphore(1 if self.writer.is_file else _WRITERS)
        self._exporting = asyncio.Semaphore(_EXPORTS)
        self.tokens = Tokens(self.store.database)
        self.jobs, self.jobs_writer = Jobs(self.store.database), Jobs(self.writer.database)
        self.answer_cache = AnswerCache(self.store.changes(), self.options.answer_bytes)

        self.stopping = False
        self._closing.clear()
        self._preparing = threading.Thread(target=self._prepare, daemon=True, name="prepare")
        self._preparing.start()
        if self.options.run_jobs and self.writer.database.writable:
            from tilewise.api.jobs.processes import ProcessExecutor
            from tilewise.api.jobs.runner import Runner

            self._runner = Runner(self._url, self.jobs_writer, self.devices, ProcessExecutor())
            self._runner.start()

    async def close(self) -> None:
        self.stopping = True
        self._closing.set()
        for task in self._misses:
            task.cancel()
        if self._runner is not None:
            await run_in_threadpool(self._runner.stop)
            self._runner = None
        await self.answer_cache.close()
        self.store.close()
        self.writer.close()
        await run_in_threadpool(self._preparing.join)  # the closed store ends it; exiting while it runs would abort

    def _prepare(self) -> None:
        """Build the shape indexes, so that no look-up has to wait for them."""
        if self._closing.wait(_QUIET_SECONDS):
            return
        try:
            self.source.prepare()
        except StoreError as error:  # expected while stopping; otherwise the first nearest look-up reports it too
            if not self.stopping:
                _log.warning("the shape indexes are not ready: %s", error)

    def wake_runner(self) -> None:
        if self._runner is not None:
            self._runner.wake()

    def devices(self) -> Mapping[str, str]:
        """Return the names of this machine's working devices by id. The first call may take a second."""
        with self._finding:
            if self._devices is None:
                from tilewise.tuner.devices.registry import rows

                self._devices = {row.id: row.name for row in rows() if row.available}
            return self._devices

    def heed_miss(self, question: Question, source_hash: str) -> None:
        """Submit a job of the lowest priority for a look-up that found nothing, if a device here can run it.

        This runs in the background, so that the look-up does not wait for a write.
        """
        if len(self._misses) < _MAX_MISSES:
            task = asyncio.create_task(self._tune_miss(question, source_hash))
            self._misses.add(task)
            task.add_done_callback(self._misses.discard)

    async def _tune_miss(self, question: Question, source_hash: str) -> None:
        from tilewise.db.jobs import Request

        try:
            devices = await self.run(self.devices)
            if ids := [device_id for device_id, name in devices.items() if name == question.device]:
                request = Request(question.kernel, source_hash, [question.shape], question.dtype, ids[0])
                await self.write(self._submit_unless_many, request)
        except TilewiseError as error:
            _log.warning("cannot submit a job for a miss: %s", error)

    def _submit_unless_many(self, request: JobRequest) -> None:
        from tilewise.db.jobs import State

        newest = self.jobs.page(most=_MAX_MISSES)
        if sum(job.state is State.QUEUED for job in newest) < _MAX_MISSES:
            _, new = self.jobs_writer.submit(request, priority=-100)
            if new:
                self.wake_runner()

    async def exact_answer(self, target: bytes, question: Question) -> Answer | None:
        """Return the answer stored for exactly this question, and keep it in memory for its request target."""
        self.answer_cache.follow()
        read_at = self.answer_cache.generation
        key = question.key
        body = await self.read(exact, self.store, question.kernel, key)
        if body is None:
            return None
        answer = Answer.of(body)
        self.answer_cache.keep(target, key, answer, read_at=read_at)
        self._found.inc()
        return answer

    async def read(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a query: on the event loop if the database is a file, where it takes microseconds, else in a thread."""
        if self.store.is_file:
            return function(*arguments, **named)
        return await run_in_threadpool(function, *arguments, **named)

    async def write(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a transaction in a thread, in order of arrival: if writers raced for SQLite's lock, one might starve.

        Raises `Unavailable` if its turn does not come within `_TURN_SECONDS`.
        """
        async with self._turn(self._writing):
            return await run_in_threadpool(function, *arguments, **named)

    def export_turn(self) -> AbstractAsyncContextManager[None]:
        """Limit the exports at once: for each, the database must keep replaced rows. Raises `Unavailable`."""
        return self._turn(self._exporting)

    @asynccontextmanager
    async def _turn(self, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await slots.acquire()
        except TimeoutError:
            raise Unavailable(f"other requests were served first for {_TURN_SECONDS:g} s; try again") from None
        try:
            yield
        finally:
            slots.release()

    async def run(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a slow function in a thread."""
        return await run_in_threadpool(function, *arguments, **named)
