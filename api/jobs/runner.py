"""A runner of queued jobs on this machine's devices: one job per device, by priority, then by age.

The runner registers as a worker, claims jobs, and starts a process for each, which marks its job finished. When a
process dies, its job returns to the queue: at once if the process ran on this machine and this cache folder shows that
it has ended, and otherwise after `LEASE_SECONDS` without a heartbeat. None of this depends on the wall clock, but for
the deadlines of jobs.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial

import tilewise
from tilewise.api.jobs.fleet import Fleet
from tilewise.api.jobs.liveness import LEASE_SECONDS, Liveness
from tilewise.api.jobs.processes import (
    IN_USE,
    ProcessEnded,
    ProcessExecutor,
    forget,
    identity,
    identity_of,
    is_gone,
    mark_for,
    new_token,
    seen_alive,
)
from tilewise.api.jobs.work import Place
from tilewise.db.queue import Job, Lease, Queue, State
from tilewise.db.workers import Lane, Workers
from tilewise.errors import TilewiseError
from tilewise.kernels import registry
from tilewise.kernels.signing import Arrivals

__all__ = ["LEASE_SECONDS", "Runner", "lanes_here"]

_POLL_SECONDS = 0.5
_BEAT_SECONDS = 5.0
_REST_SECONDS = 10.0
"""Time after which a device that another program held is tried again."""
_DRAIN_SECONDS = 30.0

_log = logging.getLogger(__name__)


def lanes_here() -> list[Lane]:
    """Return this machine's working devices, with each chip by its own number. May take a second."""
    from tilewise.tuner.devices.registry import chips, rows

    listed = [row for row in rows() if row.available]
    return [Lane(row.id, row.name, str(row.clock)) for row in listed if chips(row.id) == [row.id]]


class Runner:
    """A thread that looks for work at `place` from `start` to `stop`. `lanes` returns this machine's devices.

    It registers among `workers` once a job waits, or `quiet_seconds` have passed, and again when kernels arrive.

    Several servers on one machine may each have a runner on the same database: a device that any of them uses is busy.
    """

    def __init__(
        self,
        place: Place,
        jobs: Queue,
        lanes: Callable[[], Sequence[Lane]],
        executor: ProcessExecutor,
        workers: Workers | None = None,
        *,
        arrivals: Arrivals | None = None,
        quiet_seconds: float = 0.0,
    ) -> None:
        self._place, self._jobs, self._lanes, self._executor, self._workers = place, jobs, lanes, executor, workers
        self._fleet = None if workers is None else Fleet(workers)
        self._arrivals, self._kernels = arrivals, list[str]()
        self._stopping, self._draining = threading.Event(), threading.Event()
        self._woken = threading.Event()
        self._futures: dict[str, Future[None]] = {}
        self._leases: dict[str, Lease] = {}
        self._resting: dict[str, float] = {}
        self._reserved, self._starting = set[str](), threading.Lock()
        self._busy = set[str]()
        self._started: set[int] = set()
        self._liveness = Liveness()
        self._looked = time.monotonic()
        self._trouble = ""
        self._worker_id: int | None = None
        self._next_beat = time.monotonic() + quiet_seconds
        self._thread = threading.Thread(target=self._run, daemon=True, name="runner")

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look for work now instead of at the next poll."""
        self._woken.set()

    def reserve(self, lane: str) -> bool:
        """Keep a device free of jobs until `release`. Returns False if one runs there, or it is reserved."""
        with self._starting:
            future = self._futures.get(lane)
            if lane in self._reserved or lane in self._busy or (future is not None and not future.done()):
                return False
            self._reserved.add(lane)
            return True

    def release(self, lane: str) -> None:
        """Let a reserved device have jobs again."""
        self._reserved.discard(lane)
        self.wake()

    def has_heirloom(self, lane: str) -> bool:
        """Return whether a job runs there that another process of this host started, as far as is known."""
        future = self._futures.get(lane)
        return lane in self._busy and (future is None or future.done())

    def drain(self) -> None:
        """Start no more jobs, and wait until those that run have finished their trials and given their leases back."""
        self._draining.set()
        self._next_beat = 0.0
        self.wake()
        self._executor.terminate()
        end = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < end and any(not future.done() for future in self._futures.values()):
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill the running jobs; they resume from their stored trials when a server runs again."""
        self._stopping.set()
        self._woken.set()
        self._thread.join()
        self._executor.shutdown(wait=True, cancel_futures=True)
        for lease in self._leases.values():  # the futures' callbacks may come too late, after the database is closed
            self._attempt(partial(self._end_of_process, lease, "its runner stopped"))
        self._attempt(self._take_back_lost)
        if self._workers is not None and self._worker_id is not None:
            self._attempt(partial(self._workers.leave, self._worker_id))

    def _run(self) -> None:
        with ExitStack() as held:
            self._attempt(lambda: held.enter_context(seen_alive()))
            while not self._stopping.is_set():
                self._attempt(self.beat)
                if self._attempt(self.turn):
                    self._trouble = ""
                self._woken.wait(_POLL_SECONDS)
                self._woken.clear()

    def beat(self) -> None:
        """Register as a worker, give signs of life from then on, and remove workers that are lost."""
        if self._workers is None or self._fleet is None or time.monotonic() < self._next_beat:
            return
        self._receive_kernels()
        if self._worker_id is not None and registry.names() != self._kernels:
            self._workers.leave(self._worker_id)
            self._worker_id = None
        known = self._worker_id is not None and self._workers.beat(self._worker_id, draining=self._draining.is_set())
        if not known:
            about = (identity(), socket.gethostname(), tilewise.__version__)
            self._kernels = registry.names()
            self._worker_id = self._workers.register(*about, self._lanes(), self._kernels)
        self._next_beat = time.monotonic() + _BEAT_SECONDS
        for worker in self._fleet.sweep():
            _log.warning("worker %d on %s is lost", worker.id, worker.host)
            forget(worker.owner)

    def _receive_kernels(self) -> None:
        for line in self._arrivals.receive() if self._arrivals else ():
            _log.error(line)

    def turn(self) -> None:
        """Requeue lost jobs, and start the next job on every idle device."""
        self._jobs.expire(datetime.now(UTC))
        busy = self._busy = self._take_back_lost()
        waiting = set() if self._draining.is_set() else self._jobs.waiting(registry.names())
        if not waiting:
            return
        if self._worker_id is None:
            self._next_beat = 0.0
            self.beat()
        for lane in self._lanes():
            if waiting & lane.requests and lane.id not in busy:
                with self._starting:
                    if self._is_idle(lane):
                        self._start_next(lane)

    def _is_idle(self, lane: Lane) -> bool:
        future = self._futures.get(lane.id)
        is_free = lane.id not in self._reserved and (future is None or future.done())
        return is_free and self._resting.get(lane.id, 0.0) <= time.monotonic()

    def _start_next(self, lane: Lane) -> None:
        from tilewise.api.jobs.job_process import run_job  # imports the search in 1 s: no look-up should wait for that

        job = self._jobs.next(lane.requests, registry.names(), lane.toolchain)
        if job is None:
            return
        others = any(other.takes(job.device, job.toolchain) for other in self._lanes() if other != lane)
        about = (self._place, job.id, registry.place(job.kernel), lane.id, token := new_token())
        with mark_for(token) as mark:
            pid, self._futures[lane.id] = self._executor.start(run_job, *about, wait=not others, inherited=mark)
        owner = identity_of(pid, token)
        # The process waits for its lease. It is claimed here, so that no other worker starts one for this job.
        lease = self._jobs.claim(job, owner, host=socket.gethostname(), lane=lane.id)
        if lease is None:
            self._futures[lane.id].add_done_callback(lambda _: forget(owner))
        else:
            self._started.add(job.id)
            self._leases[lane.id] = lease
            self._futures[lane.id].add_done_callback(partial(self._ended, lease, lane))

    def _ended(self, lease: Lease, lane: Lane, future: Future[None]) -> None:
        error = future.exception()
        if isinstance(error, ProcessEnded) and error.code == IN_USE:
            self._resting[lane.id] = time.monotonic() + _REST_SECONDS
        elif error is not None and not self._stopping.is_set():
            _log.error("job %d: %s", lease.job, error)
        if error is None:
            forget(lease.owner)
        else:
            self._attempt(partial(self._end_of_process, lease, str(error)))
        self.wake()

    def _end_of_process(self, lease: Lease, why: str) -> None:
        """Requeue the job of a process of this runner that ended without giving up its lease."""
        job = self._jobs.get(lease.job)
        if job.state is State.RUNNING and job.lease == lease:
            self._requeue(job, why)
        forget(lease.owner)

    def _take_back_lost(self) -> set[str]:
        """Requeue lost jobs, and return the devices that live jobs use."""
        running, busy, now = self._jobs.running(), set(), time.monotonic()
        if now - self._looked > LEASE_SECONDS / 2:  # who was silent meanwhile may have had nobody to tell either
            self._liveness = Liveness()
        self._looked = now
        for job in running:
            if self._is_lost(job):
                if self._requeue(job, "its process ended"):
                    _log.warning("job %d is queued again; it was lost by %s", job.id, job.owner)
                    forget(job.owner)
            elif is_gone(job.owner) is False:
                busy.add(job.lane or job.device)
        return busy

    def _requeue(self, job: Job, why: str) -> bool:
        """Requeue a lost job. An attempt that this runner has ended by stopping does not count."""
        if (self._stopping.is_set() or self._draining.is_set()) and job.id in self._started:
            return self._jobs.give_back(job)
        return self._jobs.take_back(job, why)

    def _is_lost(self, job: Job) -> bool:
        return self._liveness.is_lost(job.id, job.owner, (job.attempts, job.beats))

    def _attempt(self, action: Callable[[], object]) -> bool:
        """Run `action` and log its errors, equal ones once: the runner survives an unavailable database."""
        try:
            action()
            return True
        except TilewiseError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.error("job runner: %s", error)
        except Exception:
            _log.exception("job runner")
        return False
