"""The process of one job: it claims the job, tunes shape after shape, and marks the job finished.

Every trial is stored as it is made, so a restarted job resumes where it stopped. A thread of this process sends
heartbeats and learns of a cancellation. The process exits at once when it no longer owns the job, or when the server
that started it has ended.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from tilewise.api.jobs.processes import identity
from tilewise.db.jobs import Job, Jobs, State
from tilewise.db.records import Trial, shape_text
from tilewise.db.sql.sql_store import SqlStore, open_store
from tilewise.errors import NothingFeasible, StoreError, TilewiseError
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.devices.registry import open_device
from tilewise.tuner.tuning.loop import Plan, Watcher
from tilewise.tuner.tuning.retune import RETUNE, find_stale, retune
from tilewise.tuner.tuning.tune import tune

__all__ = ["BEAT_SECONDS", "run_job"]

BEAT_SECONDS = 1.0
_GRACE_SECONDS = 15.0
"""Time that a cancelled job has to reach the end of its current trial."""
_FINISH_SECONDS = 60.0

_log = logging.getLogger(__name__)


class _Cancelled(BaseException):
    """A cancellation; like `KeyboardInterrupt`, it passes every `except Exception`."""


def run_job(url: str, number: int, kernel: str) -> None:
    """Run a queued job to its end, unless another process claimed it; `kernel` names its spec for `registry.load`."""
    with open_store(url) as store:
        jobs, owner = Jobs(store.database), identity()
        job = jobs.get(number)
        if job.state is State.QUEUED and jobs.claim(job, owner):
            _Run(store, jobs, job, owner, kernel).to_the_end()


class _Run(Watcher):
    def __init__(self, store: SqlStore, jobs: Jobs, job: Job, owner: str, kernel: str) -> None:
        self._store, self._jobs, self._job, self._owner, self._kernel = store, jobs, job, owner, kernel
        self._cancelled = threading.Event()
        self._progress: Mapping[str, Any] = {"shapes_done": 0, "shapes": len(job.shapes), "failed": []}

    def to_the_end(self) -> None:
        threading.Thread(target=self._beat, daemon=True, name="beat").start()
        try:
            state, reason = self._tune()
        except _Cancelled:
            state, reason = State.CANCELLED, ""
        except TilewiseError as error:
            state, reason = State.FAILED, str(error)
        except Exception as error:
            _log.exception("job %d", self._job.id)
            state, reason = State.FAILED, f"internal error: {type(error).__name__}: {error}"
        self._finish(state, reason)

    def _tune(self) -> tuple[State, str]:
        job, spec, failed = self._job, registry.load(self._kernel), list[str]()
        if job.search == RETUNE:
            return self._retune(spec)
        with open_device(job.device) as device:
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
                        db=self._store,
                        watcher=self,
                    )
                except NothingFeasible as error:
                    failed = [*failed, f"{shape_text(shape)}: {error}"]
        self._note(shapes_done=len(self._job.shapes), failed=failed)
        return (State.FAILED, "; ".join(failed)) if failed else (State.DONE, "")

    def _retune(self, spec: KernelSpec) -> tuple[State, str]:
        """Time the best configs of the stale problems again, until the job's time is over."""
        latest = time.monotonic() + (self._job.seconds or math.inf)
        flipped, failed = list(self._job.progress.get("flipped", ())), list[str]()
        with open_device(self._job.device) as device:
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
        self._stop_if_cancelled()

    def tried(self, trial: Trial, best: Trial | None) -> None:
        self._note(trials=self._progress["trials"] + 1)
        if best is not None and best.time_us is not None:
            self._note(best_us=best.time_us)
        self._stop_if_cancelled()

    def _stop_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise _Cancelled

    def _note(self, **changes: Any) -> None:
        self._progress = {**self._progress, **changes}

    # Heartbeats, on a thread of their own ----------------------------------------------------------------------------

    def _beat(self) -> None:
        cancelled_at: float | None = None
        while True:
            try:
                job = self._jobs.beat(self._job.id, self._owner, self._progress)
            except StoreError as error:  # the database may be locked or full for a while; this process keeps the job
                _log.warning("job %d: %s", self._job.id, error)
            else:
                if job is None:
                    os._exit(2)
                if job.cancelling:
                    self._cancelled.set()
                    cancelled_at = cancelled_at or time.monotonic()
                    if time.monotonic() - cancelled_at > _GRACE_SECONDS:
                        os._exit(3)
            time.sleep(BEAT_SECONDS)

    def _finish(self, state: State, reason: str) -> None:
        give_up = time.monotonic() + _FINISH_SECONDS
        while True:
            try:
                self._jobs.finish(self._job.id, self._owner, state, reason, self._progress)
                return
            except StoreError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(BEAT_SECONDS)
