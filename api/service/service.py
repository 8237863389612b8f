"""The state of the application while it runs: stores, answers in memory, metrics."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool

from tilewise.api.service.answer_cache import Answer, AnswerCache
from tilewise.api.service.answers import exact
from tilewise.api.service.explanations import Explanations
from tilewise.api.service.imports import Imports
from tilewise.api.service.metrics import Metrics, merged
from tilewise.api.service.siblings import Siblings
from tilewise.api.service.slow_lookups import SlowLookups
from tilewise.db.records import Problem, Question, Scope, Trial
from tilewise.errors import NotFound, TilewiseError, Unavailable
from tilewise.tuner.explain.report import Report
from tilewise.tuner.workers.supervisor import ONE_THREAD, Supervisor

if TYPE_CHECKING:
    from tilewise.api.jobs.fleet import Fleet
    from tilewise.api.jobs.liveness import Liveness
    from tilewise.api.jobs.runner import Runner
    from tilewise.db.jobs import Jobs
    from tilewise.db.jobs import Request as JobRequest
    from tilewise.db.sql.sql_store import SqlStore
    from tilewise.db.tokens import Tokens
    from tilewise.db.workers import Lane

__all__ = ["Options", "Service"]

P = ParamSpec("P")
T = TypeVar("T")

_READ_SECONDS, _WRITE_SECONDS = 0.2, 30.0
"""Time to wait for another process's lock on an SQLite file. Readers wait only if the whole file is locked; they wait
on the event loop, which answers no other request meanwhile."""

_TURN_SECONDS = 30.0
"""Time that a write or an export waits for earlier ones of this server."""

_SMALL_IMPORT_BYTES = 1 << 20

_WRITERS, _EXPORTS = 8, 4
"""Number at once, in all processes of a server; a database file has one writer."""

_READERS = 4
"""Number of slow reads at once."""

_NOTHING = Question(Problem("", {}, ""), "")
"""A question that nothing answers."""

_QUIET_SECONDS = 0.2
"""Pause between the start and background work."""

_REGISTER_SECONDS = 5.0
"""Time after the start at which the server lists its devices for others, which takes 0.4 s of processor time."""

_ENTRY = "tilewise.api.processes.worker_process:serve"

_log = logging.getLogger(__name__)

_MAX_MISSES = 100
"""Number of waiting jobs at which misses add no more: anybody can cause misses."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the service. `answer_bytes` limits the answers kept in memory, `jobs_a_token` the jobs of a token that
    wait or run. With `tune_misses`, a look-up of a registered kernel that finds nothing becomes a job."""

    reads_open: bool = True
    writes_a_minute: int = 120
    run_jobs: bool = True
    tune_misses: bool = False
    jobs_a_token: int = 1000
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
    fleet: Fleet
    seen_by_work: Liveness
    """Signs of life that workers without a database have asked about."""
    answer_cache: AnswerCache
    slow_lookups: SlowLookups
    _writing: asyncio.Semaphore
    _exporting: asyncio.Semaphore

    def __init__(self, store_url: str, options: Options, siblings: Siblings | None = None) -> None:
        self._url, self.options = store_url, options
        self._siblings = siblings or Siblings(options.writes_a_minute)
        self.limits = self._siblings.limits
        self.reads_open = options.reads_open
        self.explanations = Explanations(store_url)
        self.metrics = Metrics()
        self.metrics.gauge("tilewise_answers_kept", "Encoded answers in memory.", lambda: len(self.answer_cache))
        self.metrics.gauge(
            "tilewise_answers_bytes", "Size of the encoded answers in memory, in bytes.", lambda: self.answer_cache.size
        )
        self.metrics.gauge(
            "tilewise_lookups_waiting", "Look-ups in the queues for processes.", lambda: self.slow_lookups.waiting
        )
        self._checking: asyncio.Future[None] | None = None
        self._slow_reads = CapacityLimiter(_READERS)
        self._lanes: list[Lane] | None = None
        self._finding = threading.Lock()
        self._misses: set[asyncio.Task[None]] = set()
        self.metrics.gauge(
            "tilewise_event_streams",
            "Event streams that clients listen to.",
            lambda: len(self.limits.streams) + len(self.limits.anonymous_streams),
            of_all=True,
        )
        self._explaining = CapacityLimiter(1)
        self.stopping = False
        self._runner: Runner | None = None
        self.recalled = self.metrics.answers.labels("exact", "memory")
        self._found = self.metrics.answers.labels("exact", "database")

    async def open(self) -> None:
        """Open the stores and start the job runner. Raises `StoreError`."""
        from tilewise.api.jobs.fleet import Fleet
        from tilewise.api.jobs.liveness import Liveness
        from tilewise.db.jobs import Jobs
        from tilewise.db.sql.database import waiting
        from tilewise.db.sql.sql_store import open_store
        from tilewise.db.tokens import Tokens
        from tilewise.db.workers import Workers

        self.writer = open_store(waiting(self._url, _WRITE_SECONDS), create=True)
        self.store = open_store(waiting(self._url, _READ_SECONDS), create=False)
        self._writing = asyncio.Semaphore(1 if self.writer.is_file else self._share(_WRITERS))
        self._exporting = asyncio.Semaphore(self._share(_EXPORTS))
        self.tokens = Tokens(self.store.database)
        self.jobs, self.jobs_writer = Jobs(self.store.database), Jobs(self.writer.database)
        self.fleet, self.seen_by_work = Fleet(Workers(self.store.database)), Liveness()
        self.answer_cache = AnswerCache(self.store.changes(), self._share(self.options.answer_bytes))

        self.stopping = False
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="ready")
        supervisor = Supervisor(_ENTRY, env=ONE_THREAD)
        self._imports = Imports(self._url, supervisor)
        self.slow_lookups = SlowLookups(self._url, self.answer_cache, supervisor, self._siblings.count)
        self._preparing = asyncio.create_task(self._prepare())
        await self._siblings.open(self.metrics.text)
        if self.runs_jobs and self._siblings.is_first:
            from tilewise.api.jobs.processes import ProcessExecutor
            from tilewise.api.jobs.runner import Runner
            from tilewise.db.signed_kernels import SignedKernels
            from tilewise.kernels.signing import arrivals_here

            self._runner = Runner(
                self._url,
                self.jobs_writer,
                self.lanes,
                ProcessExecutor(),
                Workers(self.writer.database),
                arrivals=arrivals_here(SignedKernels(self.writer.database)),
                quiet_seconds=_REGISTER_SECONDS,
            )
            self._runner.start()

    async def close(self) -> None:
        self.stopping = True
        await self._siblings.close()
        for task in (self._preparing, *self._misses):
            task.cancel()
        if self._runner is not None:
            await run_in_threadpool(self._runner.stop)
            self._runner = None
        await run_in_threadpool(self.slow_lookups.close)
        await run_in_threadpool(self._imports.close)
        await run_in_threadpool(self._checker.shutdown)
        await self.answer_cache.close()
        self.store.close()
        self.writer.close()

    async def _prepare(self) -> None:
        """Have the shape indexes built, if there are shapes, so that no look-up has to wait for them."""
        await asyncio.sleep(_QUIET_SECONDS)
        try:
            if await self.read(next, self.store.families(), None):
                await self.slow_lookups.prepare()
        except TilewiseError as error:  # the first look-up that needs them reports it too
            _log.warning("the shape indexes are not ready: %s", error)

    async def check_ready(self) -> None:
        """Check that the database answers, in a thread that does nothing else. Raises `StoreError`."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.get_running_loop().run_in_executor(self._checker, self._check)
        await asyncio.shield(self._checking)

    def _check(self) -> None:
        self.store.check_schema()
        self.store.lookup(_NOTHING)

    async def metrics_text(self) -> bytes:
        """Return the metrics of all processes of this server, and those of the server as a whole."""
        own = self.metrics.text()
        told = own if self._siblings.count == 1 else await self.run(merged, await self._siblings.texts(own))
        return told + self.metrics.text_of_all()

    def _share(self, total: int) -> int:
        """Return this process's part of what all processes of the server may have."""
        return max(1, total // self._siblings.count)

    @property
    def runs_jobs(self) -> bool:
        """Return whether this server, in one of its processes, runs jobs on this machine's devices."""
        return self.options.run_jobs and self.writer.database.writable

    def wake_runner(self) -> None:
        if self._runner is not None:
            self._runner.wake()

    def lanes(self) -> list[Lane]:
        """Return this machine's working devices. The first call may take a second."""
        with self._finding:
            if self._lanes is None:
                from tilewise.api.jobs.runner import lanes_here

                self._lanes = lanes_here()
            return self._lanes

    def devices(self) -> Mapping[str, str]:
        """Return the names of the devices that jobs may ask for, by id: this machine's and those of live workers.

        Where several chips of a kind may run a job, there is also the kind's id. The first call may take a second.
        """
        lanes = [*self.lanes(), *(lane for worker in self.fleet.live() for lane in worker.lanes)]
        return {device_id: lane.name for lane in lanes for device_id in (lane.kind, lane.id)}

    def asked_for(self) -> set[str]:
        """Return all that jobs may ask for: the ids of `devices`, and the names of those that measure."""
        lanes = [*self.lanes(), *(lane for worker in self.fleet.live() for lane in worker.lanes)]
        return {text for lane in lanes for text in lane.requests}

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

    def import_place(self, size: int | None) -> AbstractContextManager[None]:
        """Limit the imports that arrive or wait at once, by the bytes of the body, None if they are not known.
        Raises `Busy`."""
        is_small = size is not None and size <= _SMALL_IMPORT_BYTES
        return (self.limits.small_imports if is_small else self.limits.imports).one("importers")

    async def merge_file(self, path: str) -> dict[str, Any]:
        """Merge an export file; return the JSON of the outcome."""
        outcome = await self._imports.merge(path, self._turn(self._writing))
        await self.answer_cache.catch_up()
        return outcome

    @asynccontextmanager
    async def export_turn(self, caller: object) -> AsyncIterator[None]:
        """Limit the exports at once: for each, the database must keep replaced rows. Raises `Busy`, `Unavailable`."""
        with self.limits.exports.one(caller):
            async with self._turn(self._exporting):
                yield

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
        """Run a slow function in a thread, a few of them at once: each that computes delays the event loop."""
        return await to_thread.run_sync(partial(function, *arguments, **named), limiter=self._slow_reads)

    async def explain(self, caller: object, scope: Scope, winner: Trial) -> Report:
        """Return the report on a winner, which takes seconds if it is new; one is made at a time.

        Raises `NotFound` if it cannot be made, and `Busy` if too many wait.
        """
        found = self.explanations.known(scope, winner)
        if found is None:
            with self.limits.explanations.one(caller):
                found = await to_thread.run_sync(self.explanations.make, scope, winner, limiter=self._explaining)
        if isinstance(found, str):
            raise NotFound(found)
        return found
