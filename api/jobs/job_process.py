"""The process of one job: it tunes shape after shape, and marks the job finished.

Every trial is stored as it is made, so a restarted job resumes where it stopped. A thread of this process sends
heartbeats and learns of a cancellation. The process exits at once when it no longer owns the job, or when the server
that started it has ended. On SIGTERM and SIGINT it finishes the current trial and gives the job back to the queue.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tilewise.api.jobs.liveness import LEASE_SECONDS
from tilewise.api.jobs.processes import IN_USE, identity_of, seen_alive
from tilewise.api.jobs.work import Place, open_work
from tilewise.db.queue import Job, Lease, Queue, State
from tilewise.db.records import Trial, shape_text
from tilewise.db.store import Store
from tilewise.errors import InUse, LeaseLost, NothingFeasible, StoreError, TilewiseError, Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.registry import open_device
from tilewise.tuner.tuning.loop import Plan, Watcher
from tilewise.tuner.tuning.retune import RETUNE, find_stale, retune
from tilewise.tuner.tuning.tune import tune

__all__ = ["BEAT_SECONDS", "run_job"]

BEAT_SECONDS = 1.0
_GRACE_SECONDS = 15.0
"""Time that a cancelled or stopped job has to reach the end of its current trial."""
_FINISH_SECONDS = 60.0
_CLAIM_SECONDS = 30.0
"""Time that the process waits for the lease that its runner claims for it."""

_PATIENCE_SECONDS = 600.0
"""Time for which a server that does not answer is asked again. Other workers take the job back earlier if they reach
the server and this process does not."""

_log = logging.getLogger(__name__)


class _Cancelled(BaseException):
    """A cancellation; like `KeyboardInterrupt`, it passes every `except Exception`."""


class _Stopped(BaseException):
    """The end of this process on purpose, which is not the end of the job."""


class _Late(BaseException):
    """The job's deadline passed."""


def _handle_stops(handler: Callable[..., None] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, handler)


def run_job(place: Place, number: int, kernel: str, lane: str, token: str, *, wait: bool) -> None:
    """Run a job of `place` to its end on a device, once it is claimed for this process, started with `token`.

    `kernel` names its spec for `registry.load`. If another program holds the device, wait for it, or without `wait`
    give the job back and exit with `IN_USE`.
    """
    owner = identity_of(os.getpid(), token)
    with open_work(place, patience=_PATIENCE_SECONDS) as work, ExitStack() as held:
        jobs, fault = work.jobs, ""
        try:
            held.enter_context(seen_alive(owner))
        except Unavailable as error:
            fault = str(error)
        if (job := _claimed(jobs, number, owner)) is None:
            return
        if fault:
            jobs.finish(job.lease, State.FAILED, fault, {})
            return
        store = work.store_under(job.lease, held.enter_context(_running_on(job)))
        run = _Run(store, jobs, job, job.lease, kernel, lane=lane, wait=wait)
        run.to_the_end()
    if run.device_was_in_use:
        sys.exit(IN_USE)


@contextmanager
def _running_on(job: Job) -> Iterator[Callable[[], None]]:
    """Yield a function that raises `LeaseLost` once this process was stopped for as long as a lease.

    Others could have taken its job then, and did, unless none of them ran either.
    """
    ended, seen, was_stopped = threading.Event(), time.monotonic(), False

    def look() -> None:
        nonlocal seen, was_stopped
        was_stopped = was_stopped or time.monotonic() - seen > LEASE_SECONDS
        seen = time.monotonic()

    def check() -> None:
        look()
        if was_stopped:
            raise LeaseLost(f"job {job.id}: its process was stopped for a while, and gives it back")

    def keep_looking() -> None:
        while not ended.wait(BEAT_SECONDS):
            look()

    threading.Thread(target=keep_looking, daemon=True, name="stops").start()
    try:
        yield check
    finally:
        ended.set()


def _claimed(jobs: Queue, number: int, owner: str) -> Job | None:
    """Return the job once `owner` has its lease; None if another has it."""
    give_up = time.monotonic() + _CLAIM_SECONDS
    while (job := jobs.get(number)).state is State.QUEUED and time.monotonic() < give_up:
        time.sleep(0.05)
    return job if job.state is State.RUNNING and job.owner == owner else None


class _Run(Watcher):
    def __init__(
        self, store: Store, jobs: Queue, job: Job, lease: Lease, kernel: str, *, lane: str = "", wait: bool = True
    ) -> None:
        self._store, self._jobs, self._job, self._lease, self._kernel = store, jobs, job, lease, kernel
        self._lane, self._wait = lane, wait
        self._cancelled, self._late, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._stopping = self.device_was_in_use = False
        self._progress: Mapping[str, Any] = {"shapes_done": 0, "shapes": len(job.shapes), "failed": []}

    def to_the_end(self) -> None:
        beating = threading.Thread(target=self._beat, daemon=True, name="beat")
        beating.start()
        try:
            _handle_stops(self._stop)
            end = self._run()
        except _Stopped:
            end = self._give_back
        _handle_stops(signal.SIG_IGN)
        self._ended.set()
        beating.join()
        self._insist(end)

    def _run(self) -> Callable[[], object]:
        """Tune, and return the action that gives up the lease."""
        try:
            return self._finish(*self._tune())
        except _Cancelled:
            return self._finish(State.CANCELLED, "")
        except _Late:
            return self._finish(State.FAILED, "its deadline passed while it ran; its trials are stored")
        except InUse as error:
            _log.warning("job %d: %s", self._job.id, error)
            self.device_was_in_use = True
            return self._give_back
        except LeaseLost as error:
            _log.warning("%s", error)
            return self._give_back
        except StoreError as error:  # the database may be back for the next attempt
            _log.error("job %d: %s", self._job.id, error)
            return partial(self._take_back, str(error))
        except TilewiseError as error:
            return self._finish(State.FAILED, str(error))
        except Exception as error:
            _log.exception("job %d", self._job.id)
            return self._finish(State.FAILED, f"internal error: {type(error).__name__}: {error}")

    def _tune(self) -> tuple[State, str]:
        job, spec, failed = self._job, registry.load(self._kernel), list[str]()
        if job.search == RETUNE:
            return self._retune(spec)
        since = self._fresh_since()
        with self._open() as device:
            for done, shape in enumerate(job.shapes):
                self._note(shapes_done=done, dims=dict(shape), failed=failed)
                try:
                    tune(
                        spec,
                        shape,
                        job.dtype,
                        device=device,
                        trials=job.trials,
                        timeout=job.seconds,
                        search=job.search,
                        seed=job.seed,
                        fresh=job.fresh,
                        since=since,
                        db=self._store,
                        watcher=self,
                    )
                except NothingFeasible as error:
                    failed = [*failed, f"{shape_text(shape)}: {error}"]
        self._note(shapes_done=len(self._job.shapes), failed=failed)
        return (State.FAILED, "; ".join(failed)) if failed else (State.DONE, "")

    def _open(self) -> Device:
        return open_device(self._lane or self._job.device, wait=None if self._wait else 0)

    def _fresh_since(self) -> int | None:
        """Return the mark of the first start of a fresh job, so that later starts go on with its trials."""
        if self._job.fresh and self._job.mark is None:
            self._jobs.begin(self._lease, mark := self._store.mark())
            return mark
        return self._job.mark

    def _stop(self, number: int, frame: object) -> None:
        """Have the process stop after the current trial, or now if that takes too long or the signal comes again."""
        if self._stopping:
            raise _Stopped
        self._stopping = True
        signal.setitimer(signal.ITIMER_REAL, _GRACE_SECONDS)

    def _retune(self, spec: KernelSpec) -> tuple[State, str]:
        """Time the best configs of the stale problems again, until the job's time is over."""
        latest = time.monotonic() + (self._job.seconds or math.inf)
        flipped, failed = list(self._job.progress.get("flipped", ())), list[str]()
        with self._open() as device:
            found, refused = find_stale(self._store, device, spec)
            wanted = [stale for stale in found if self._is_asked_for(stale.problem)]
            self._note(shapes=len(wanted), failed=refused)
            for number, stale in enumerate(wanted):
                if time.monotonic() >= latest:
                    break
                shape = dict(stale.problem.shape)
                self._note(dims=shape)
                done = retune(stale, device, self._store, self)
                cost = {} if done.cost is None else {"cost": round(done.cost, 4)}
                flipped += [{"dims": shape, **cost}] if done.flipped else []
                failed += [f"{shape_text(shape)}: {done.reason}"] if done.after is None else []
                self._note(shapes_done=number + 1, flipped=flipped, failed=[*refused, *failed])
        return (State.FAILED, "; ".join(failed)) if failed else (State.DONE, "")

    def _is_asked_for(self, problem: Problem) -> bool:
        asked = [dict(shape) for shape in self._job.shapes]
        return problem.dtype == self._job.dtype and (not asked or dict(problem.shape) in asked)

    # Watcher methods, called on the tuning thread --------------------------------------------------------------------

    def started(self, plan: Plan) -> None:
        known = self._store.result(plan.scope).winner
        self._progress = {name: value for name, value in self._progress.items() if name != "best_us"}
        self._note(trials=plan.resumed, of=plan.trials, clock=str(plan.scope.clock), scope=plan.scope.key)
        if known is not None and known.time_us is not None:
            self._note(best_us=known.time_us)
        self._end_if_asked()

    def tried(self, trial: Trial, best: Trial | None) -> None:
        self._note(trials=self._progress["trials"] + 1)
        if best is not None and best.time_us is not None:
            self._note(best_us=best.time_us)
        self._end_if_asked()

    def _end_if_asked(self) -> None:
        if self._cancelled.is_set():
            raise _Cancelled
        if self._late.is_set():
            raise _Late
        if self._stopping:
            raise _Stopped

    def _note(self, **changes: Any) -> None:
        self._progress = {**self._progress, **changes}

    # Heartbeats, on a thread of their own ----------------------------------------------------------------------------

    def _beat(self) -> None:
        cancelled_at: float | None = None
        while not self._ended.is_set():
            try:
                job = self._jobs.beat(self._lease, self._progress)
            except StoreError as error:  # the database may be locked or full for a while; this process keeps the job
                _log.warning("job %d: %s", self._job.id, error)
            else:
                if job is None:
                    os._exit(2)
                if job.deadline is not None and job.deadline <= datetime.now(UTC):
                    self._late.set()
                if job.cancelling:
                    self._cancelled.set()
                    cancelled_at = cancelled_at or time.monotonic()
                    if time.monotonic() - cancelled_at > _GRACE_SECONDS:
                        os._exit(3)
            self._ended.wait(BEAT_SECONDS)

    # The end of the lease --------------------------------------------------------------------------------------------

    def _finish(self, state: State, reason: str) -> Callable[[], object]:
        return lambda: self._jobs.finish(self._lease, state, reason, self._progress)

    def _give_back(self) -> None:
        if (job := self._jobs.get(self._job.id)).lease == self._lease:
            self._jobs.give_back(job)

    def _take_back(self, why: str) -> None:
        if (job := self._jobs.get(self._job.id)).lease == self._lease:
            self._jobs.take_back(job, why)

    def _insist(self, end: Callable[[], object]) -> None:
        """Give up the lease, again and again for a minute while the database fails."""
        give_up = time.monotonic() + _FINISH_SECONDS
        while True:
            try:
                end()
                return
            except StoreError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(BEAT_SECONDS)
