"""A runner of queued jobs on this machine's devices: one job per device, by priority, then by age.

The runner only starts processes; each process claims its job and marks it finished. When a process dies, its job
returns to the queue: at once if the process ran on this machine, where its identity shows that it has ended, and after
`LEASE_SECONDS` without a heartbeat if it ran on another. None of this depends on the wall clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from tilewise.api.jobs.processes import identity, is_gone
from tilewise.db.jobs import Job, Jobs, State
from tilewise.errors import TilewiseError
from tilewise.kernels import registry

__all__ = ["LEASE_SECONDS", "Runner"]

LEASE_SECONDS = 60.0
_POLL_SECONDS = 0.5

_log = logging.getLogger(__name__)


class Runner:
    """A thread that looks for work from `start` to `stop`. `devices` returns the ids of this machine's devices.

    Several servers on one machine may each have a runner on the same database: a device that any of them uses is busy.
    """

    def __init__(
        self,
        url: str,
        jobs: Jobs,
        devices: Callable[[], Container[str]],
        executor: Executor,
    ) -> None:
        self._url, self._jobs, self._devices, self._executor = url, jobs, devices, executor
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._futures: dict[str, Future[Any]] = {}
        self._seen: dict[int, tuple[int, float]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True, name="runner")

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look for work now instead of at the next poll."""
        self._woken.set()

    def stop(self) -> None:
        """Kill the running jobs; they resume from their stored trials when a server runs again."""
        self._stopping.set()
        self._woken.set()
        self._thread.join()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._attempt(self._take_back_lost)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._attempt(self.turn)
            self._woken.wait(_POLL_SECONDS)
            self._woken.clear()

    def turn(self) -> None:
        """Requeue lost jobs, and start the next job on every idle device."""
        busy = self._take_back_lost()
        for device in self._jobs.waiting(registry.names()) - busy:
            future = self._futures.get(device)
            if (future is None or future.done()) and device in self._devices():
                self._start_next(device)

    def _start_next(self, device: str) -> None:
        from tilewise.api.jobs.job_process import run_job  # imports the search in 1 s: no look-up should wait for that

        job = self._jobs.next(device, registry.names())
        if job is not None:
            future = self._executor.submit(run_job, self._url, job.id, registry.place(job.kernel))
            self._futures[device] = future
            future.add_done_callback(partial(self._ended, job))

    def _ended(self, job: Job, future: Future[Any]) -> None:
        if (error := future.exception()) is not None and not self._stopping.is_set():
            _log.error("job %d: %s", job.id, error)
            self._attempt(partial(self._count_false_start, job, str(error)))
        self.wake()

    def _count_false_start(self, job: Job, why: str) -> None:
        """Count an attempt of a process that ended before it claimed its job, so that it is not restarted endlessly."""
        now = self._jobs.get(job.id)
        if now.state is State.QUEUED and now.attempts == job.attempts and self._jobs.claim(now, identity()):
            self._jobs.take_back(self._jobs.get(job.id), why)

    def _take_back_lost(self) -> set[str]:
        """Requeue lost jobs, and return the devices that live jobs use."""
        busy = set()
        for job in self._jobs.running():
            if self._is_lost(job):
                if self._jobs.take_back(job, "its process ended"):
                    _log.warning("job %d is queued again; it was lost by %s", job.id, job.owner)
            elif is_gone(job.owner) is False:
                busy.add(job.device)
        return busy

    def _is_lost(self, job: Job) -> bool:
        gone = is_gone(job.owner)
        if gone is not None:
            return gone
        beats, since = self._seen.get(job.id, (-1, 0.0))
        if beats != job.beats:
            self._seen[job.id] = job.beats, time.monotonic()
            return False
        return time.monotonic() - since > LEASE_SECONDS

    def _attempt(self, action: Callable[[], object]) -> None:
        """Run `action` and log its errors: the runner survives an unavailable database."""
        try:
            action()
        except TilewiseError as error:
            _log.error("job runner: %s", error)
        except Exception:
            _log.exception("job runner")
