"""What the application holds while it runs: stores, answers in memory, metrics."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

from tilewise.api.service.answer_cache import AnswerCache
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
"""How long to wait for another process's lock on an SQLite file. Readers need not, but where somebody locks the whole
file; they wait on the event loop, where nobody else is answered meanwhile."""

_TURN_SECONDS = 30.0
"""How long a write, or an export, waits for this server's own before it."""

_WRITERS, _EXPORTS = 8, 4
"""At once; one writer where the database is a file."""

_QUIET_SECONDS = 0.2
"""After a start, before work that no request asked for."""

_log = logging.getLogger(__name__)

_MOST_MISSES = 100
"""Jobs that may wait before misses make no more of them: anybody may miss."""


@dataclass(frozen=True, slots=True)
class Options:
    """`answer_bytes` bounds the answers that are kept in memory. With `tune_misses` a look-up of a registered kernel
    that finds nothing becomes a job."""

    reads_open: bool = True
    writes_a_minute: int = 120
    run_jobs: bool = True
    tune_misses: bool = False
    answer_bytes: int = 256 << 20


class Service:
    """Usable between `open` and `close`, which the application's lifespan calls."""

    store: SqlStore
    """For reading, on the event loop too."""
    writer: SqlStore
    """For writing, from threads: it waits longer for others."""
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
        self.metrics.gauge("tilewise_answers_bytes", "Bytes that they take.", lambda: self.answer_cache.size)
        self._devices: dict[str, str] | None = None
        self._finding, self._indexing = threading.Lock(), threading.Lock()
        self._source: StoreSource | None = None
        self._misses: set[asyncio.Task[None]] = set()
        self.streams = 0
        """Event streams that are open."""
        self.stopping = False
        self._closing = threading.Event()
        self._runner: Runner | None = None
        self.recalled = self.metrics.answers.labels("exact", "memory")

    @property
    def source(self) -> StoreSource:
        """`store` with indexes for look-ups that may relax."""
        with self._indexing:
            if self._source is None:
                from tilewise.tuner.lookup.store_source import StoreSource  # costs a start 0.2 s

                self._source = StoreSource(self.store)
            return self._source

    async def open(self) -> None:
        """Raises `StoreError`."""
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
        await run_in_threadpool(self._preparing.join)  # a closed store ends it; a process that ends under it aborts

    def _prepare(self) -> None:
        """Make the indexes of shapes, so that no look-up has to wait for them."""
        if self._closing.wait(_QUIET_SECONDS):
            return
        try:
            self.source.prepare()
        except StoreError as error:  # the first look-up near a shape will say it, unless this is the end
            if not self.stopping:
                _log.warning("the indexes of shapes are not ready: %s", error)

    def wake_runner(self) -> None:
        if self._runner is not None:
            self._runner.wake()

    def devices(self) -> Mapping[str, str]:
        """Names by id of this machine's devices that work. Found out once, which may take a second."""
        with self._finding:
            if self._devices is None:
                from tilewise.tuner.devices.registry import rows

                self._devices = {row.id: row.name for row in rows() if row.available}
            return self._devices

    def heed_miss(self, question: Question, source_hash: str) -> None:
        """Make a look-up that found nothing a job of the least priority, where a device here can run it; in the
        background, since no look-up waits for a write."""
        if len(self._misses) < _MOST_MISSES:
            task = asyncio.create_task(self._tune_miss(question, source_hash))
            self._misses.add(task)
            task.add_done_callback(self._misses.discard)

    async def _tune_miss(self, question: Question, source_hash: str) -> None:
        from tilewise.db.jobs import Request

        try:
            devices = await self.run(self.devices)
            if ids := [number for number, name in devices.items() if name == question.device]:
                request = Request(question.kernel, source_hash, [question.dims], question.dtype, ids[0])
                await self.write(self._submit_unless_many, request)
        except TilewiseError as error:
            _log.warning("a miss became no job: %s", error)

    def _submit_unless_many(self, request: JobRequest) -> None:
        from tilewise.db.jobs import State

        newest = self.jobs.page(most=_MOST_MISSES)
        if sum(job.state is State.QUEUED for job in newest) < _MOST_MISSES:
            _, new = self.jobs_writer.submit(request, priority=-100)
            if new:
                self.wake_runner()

    async def read(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """A question of microseconds on the event loop, where the database is a file; elsewhere in a thread."""
        if self.store.is_file:
            return function(*arguments, **named)
        return await run_in_threadpool(function, *arguments, **named)

    async def write(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """A transaction, in a thread, in the order asked: writers that race for SQLite's lock may starve one of them.

        Raises `Unavailable` where its turn does not come within `_TURN_SECONDS`.
        """
        async with self._turn(self._writing):
            return await run_in_threadpool(function, *arguments, **named)

    def export_turn(self) -> AbstractAsyncContextManager[None]:
        """While one exports: what is read stays as it was meanwhile, which costs the database. Raises `Unavailable`."""
        return self._turn(self._exporting)

    @asynccontextmanager
    async def _turn(self, places: asyncio.Semaphore) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await places.acquire()
        except TimeoutError:
            raise Unavailable(f"others are served, and were for {_TURN_SECONDS:g} s; ask again") from None
        try:
            yield
        finally:
            places.release()

    async def run(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What takes longer, in a thread."""
        return await run_in_threadpool(function, *arguments, **named)
