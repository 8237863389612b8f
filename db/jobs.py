"""Jobs: requested tunings, queued until they are done, and each run by one process at a time.

The process that runs a job is its *owner* and increments `beats` as a sign of life. `tilewise.api.jobs.runner` decides
whether an owner is still alive. Here every change is conditional on the job's state before it. So only one of two
processes that claim a job gets it. Each claim is a `Lease` with a larger number. All writes of an owner check its lease
in their own transaction: an owner that lost its job, and wakes up after a pause, stores nothing and ends nothing.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Integer, Select, Update, bindparam, delete, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from tilewise.db.queue import Job, Lease, Queue, State
from tilewise.db.records import Shape, canonical_json, digest
from tilewise.db.sql import models
from tilewise.db.sql.database import Database
from tilewise.db.sql.leased_store import LeasedStore, Repeated
from tilewise.db.sql.sql_store import SqlStore
from tilewise.errors import Busy, LeaseLost, NotFound, StoreError, UsageError

__all__ = ["ATTEMPTS", "Job", "Jobs", "Lease", "LeaseLost", "Request", "State"]

ATTEMPTS = 10
"""Starts in a row without a new trial after which a job fails; one that kills its process would restart forever."""


@dataclass(frozen=True, slots=True)
class Request:
    """A tuning request. `device` is an id such as `model:Ascend910B4`; `source_hash` is that of the kernel now.

    `trials` and `seconds` are the budget per shape; None means the search's default. `revision` is the store's, for a
    request whose meaning depends on what is stored: after a write it is another request. `toolchain` is the only one
    allowed, empty for any. A `fresh` job ignores trials that were stored before it. The `deadline` is a time of day.
    """

    kernel: str
    source_hash: str
    shapes: Sequence[Shape]
    dtype: str
    device: str
    trials: int | None = None
    seconds: float | None = None
    search: str = "guided"
    seed: int = 0
    revision: int | None = None
    toolchain: str = ""
    fresh: bool = False
    deadline: datetime | None = None

    @property
    def key(self) -> str:
        """A digest that is equal for equal requests, whatever the order of their shapes."""
        shapes = sorted(map(canonical_json, self.shapes))
        budget = [self.trials, self.seconds, self.search, self.seed]
        budget += [] if self.revision is None else [self.revision]
        budget += [f"toolchain {self.toolchain}"] if self.toolchain else []
        budget += ["fresh"] if self.fresh else []
        return digest([self.kernel, self.source_hash, shapes, self.dtype, self.device, *budget])


_J = models.jobs.c
_COLUMNS = tuple(name for name in Job.__dataclass_fields__)
_ALL = select(*(_J[name] for name in _COLUMNS))
_LIMIT = bindparam("most", type_=Integer)
_ONE = _ALL.where(_J.id == bindparam("id"))
_KEYED = _ALL.where(_J.key == bindparam("key"), text("state IN ('queued', 'running', 'done')"))


@functools.cache
def _page(fields: frozenset[str]) -> Select[Any]:
    """Select jobs by these fields, the newest first."""
    page = _ALL.where(_J.id < bindparam("before"), *(_J[name] == bindparam(name) for name in sorted(fields)))
    return page.order_by(_J.id.desc()).limit(_LIMIT)


_RUNNING = _ALL.where(_J.state == "running").order_by(_J.id)
_NEXT = (
    _ALL.where(
        _J.state == "queued",
        _J.device == bindparam("device"),
        _J.kernel == bindparam("kernel"),
        _J.toolchain == bindparam("toolchain"),
    )
    .order_by(_J.priority.desc(), _J.id)
    .limit(_LIMIT)
)
_WAITING = select(_J.device, _J.kernel, _J.toolchain).where(_J.state == "queued").distinct()
_UNFINISHED = select(func.count()).where(text("state IN ('queued', 'running')"), _J.token == bindparam("token"))
_COUNTS = select(_J.state, _J.device, func.count()).group_by(_J.state, _J.device)
_DEADLINES = select(_J.deadline).where(_J.state == "queued", _J.deadline.is_not(None))
_KEY = select(_J.key).where(_J.id == bindparam("id"))
_LAST = 2**63 - 1


class Jobs(Queue):
    """The jobs in a database. All methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def submit(
        self, request: Request, *, priority: int = 0, token: int | None = None, quota: int | None = None
    ) -> tuple[Job, bool]:
        """Return this request's job, and whether it is new. A queued, running or done job serves an equal request.

        Raises `Busy` if the token has `quota` jobs that wait or run.
        """
        if known := self._keyed(request.key):
            return known, False
        self._check_quota(token, quota)
        values = {
            "key": request.key,
            "kernel": request.kernel,
            "shapes": json.dumps([dict(dims) for dims in request.shapes], separators=(",", ":")),
            "dtype": request.dtype,
            "device": request.device,
            "trials": request.trials,
            "seconds": request.seconds,
            "search": request.search,
            "seed": request.seed,
            "priority": priority,
            "state": State.QUEUED.value,
            "reason": "",
            "progress": "{}",
            "owner": "",
            "beats": 0,
            "attempts": 0,
            "cancelling": False,
            "created": datetime.now(UTC),
            "toolchain": request.toolchain,
            "fresh": request.fresh,
            "deadline": request.deadline,
            "token": token,
        }
        try:
            with self._database.write() as connection, connection.begin_nested():
                job_id = connection.execute(insert(models.jobs).values(values).returning(_J.id)).scalar_one()
        except StoreError as error:
            if isinstance(error.__cause__, IntegrityError) and (known := self._keyed(request.key)):
                return known, False  # another process submitted it just now
            raise
        return self.get(job_id), True

    def get(self, number: int) -> Job:
        rows = self._database.fetch(_ONE, id=number)
        if not rows:
            raise NotFound(f"job {number} does not exist")
        return _read(rows[0])

    def page(
        self,
        *,
        before: int | None = None,
        most: int = 50,
        state: str | None = None,
        kernel: str | None = None,
        device: str | None = None,
    ) -> list[Job]:
        """Return a page of jobs, newest first, of those with these fields; None is any. Pass the last job's id as
        `before` to get the next page."""
        given = {"state": state, "kernel": kernel, "device": device}
        wanted = {name: value for name, value in given.items() if value is not None}
        rows = self._database.fetch(_page(frozenset(wanted)), before=before or _LAST, most=most, **wanted)
        return [_read(row) for row in rows]

    def running(self) -> list[Job]:
        return [_read(row) for row in self._database.fetch(_RUNNING)]

    def counts(self) -> list[tuple[str, str, int]]:
        """Return the number of jobs by state and requested device."""
        return [(state, device, count) for state, device, count in self._database.fetch(_COUNTS)]

    def waiting(self, kernels: Collection[str]) -> set[str]:
        return {device for device, kernel, _ in self._database.fetch(_WAITING) if kernel in kernels}

    def next(self, devices: Collection[str], kernels: Collection[str], toolchain: str = "") -> Job | None:
        queued = [
            {"device": device, "kernel": kernel, "toolchain": wanted}
            for device, kernel, wanted in self._database.fetch(_WAITING)
            if device in devices and kernel in kernels and wanted in ("", toolchain)
        ]
        rows = (row for fields in queued for row in self._database.fetch(_NEXT, most=1, **fields))
        return min(map(_read, rows), key=lambda job: (-job.priority, job.id), default=None)

    def claim(self, job: Job, owner: str, *, host: str = "", lane: str = "") -> Lease | None:
        lease = Lease(job.id, owner, job.attempts + 1)
        change = update(models.jobs).where(_J.id == job.id, _J.state == "queued", _J.attempts == job.attempts)
        claimed = {"state": "running", "owner": owner, "attempts": lease.number, "beats": 0, "stored": 0, "written": 0}
        claimed |= {"host": host, "lane": lane}
        if self._change(change.values(**claimed, started=datetime.now(UTC))):
            return lease
        now = self.get(job.id)
        return lease if now.state is State.RUNNING and now.lease == lease else None

    def store(
        self, store: SqlStore, lease: Lease, before: Callable[[], None] = lambda: None, *, number: int | None = None
    ) -> SqlStore:
        """Return the store for the owner's trials. Its writes raise `LeaseLost` once the job is not the owner's.

        Each calls `before`, which may refuse it. With a `number`, it is for one write of the lease, and raises
        `Repeated` if that or a later one was stored.
        """
        numbered = {} if number is None else {"written": number}

        def check(connection: Connection, new: int) -> None:
            before()
            change = _held(lease).values(stored=_J.stored + new, **numbered)
            if connection.execute(change if number is None else change.where(_J.written < number)).rowcount:
                return
            if number is not None and connection.execute(_held(lease).values(written=_J.written)).rowcount:
                raise Repeated
            raise LeaseLost(f"job {lease.job} was taken from its process, which therefore stores nothing more")

        return LeasedStore(store, check)

    def begin(self, lease: Lease, mark: int) -> None:
        self._change(_held(lease).where(_J.mark.is_(None)).values(mark=mark))

    def beat(self, lease: Lease, progress: Mapping[str, Any]) -> Job | None:
        if not self._change(_held(lease).values(beats=_J.beats + 1, progress=json.dumps(dict(progress)))):
            return None
        return self.get(lease.job)

    def finish(self, lease: Lease, state: State, reason: str, progress: Mapping[str, Any]) -> bool:
        ended = {"state": state.value, "reason": reason, "progress": json.dumps(dict(progress))}
        return self._change(_held(lease).values(**ended, finished=datetime.now(UTC)))

    def take_back(self, job: Job, why: str) -> bool:
        fruitless = 0 if job.stored else job.fruitless + 1
        if fruitless >= ATTEMPTS and not job.cancelling:
            reason = f"started {fruitless} times in a row without a new trial: {why}"
            return self._return(job, state="failed", reason=reason, finished=datetime.now(UTC))
        return self._return(job, fruitless=fruitless)

    def give_back(self, job: Job) -> bool:
        return self._return(job, fruitless=0 if job.stored else job.fruitless)

    def _return(self, job: Job, **ended: Any) -> bool:
        seen = _held(job.lease).where(_J.beats == job.beats, _J.stored == job.stored)
        if job.cancelling:
            ended = {"state": "cancelled", "finished": datetime.now(UTC)}
        return self._change(seen.values(**{"state": "queued", "owner": ""} | ended))

    def cancel(self, number: int) -> Job:
        """Cancel a queued job, or ask a running job's owner to stop. A finished job is unchanged. Raises `NotFound`."""
        waits = update(models.jobs).where(_J.id == number, _J.state == "queued")
        ended = {"state": "cancelled", "finished": datetime.now(UTC)}
        if not self._change(waits.values(**ended)):
            runs = update(models.jobs).where(_J.id == number, _J.state == "running")
            self._change(runs.values(cancelling=True))
        return self.get(number)

    def retry(self, number: int, *, token: int | None = None, quota: int | None = None) -> Job:
        """Queue a failed or cancelled job again, with all its attempts, and return it; any other is unchanged.

        If another job has come to serve the same request, return that one. Raises `NotFound`, and `Busy` as `submit`.
        """
        job = self.get(number)
        if job.state not in (State.FAILED, State.CANCELLED):
            return job
        self._check_quota(token, quota)
        again = update(models.jobs).where(_J.id == number, _J.state == job.state.value)
        reset = {"state": "queued", "reason": "", "owner": "", "fruitless": 0, "cancelling": False, "finished": None}
        try:
            self._change(again.values(**reset, token=token))
        except StoreError as error:
            key = self._database.fetch_value(_KEY, id=number)
            if isinstance(error.__cause__, IntegrityError) and (known := self._keyed(key)):
                return known
            raise
        return self.get(number)

    def remove(self, number: int) -> Job:
        """Remove the record of a job that has ended, and return it. Raises `NotFound`, and `UsageError` for others.

        Its trials stay. A later equal request is a new job.
        """
        job = self.get(number)
        ended = (_J.id == number, _J.state.in_([state.value for state in State if state.is_final]))
        if not self._change(delete(models.jobs).where(*ended)):
            raise UsageError(f"job {number} is {self.get(number).state}; cancel it before its record is removed")
        return job

    def expire(self, now: datetime) -> None:
        if all(deadline > now for (deadline,) in self._database.fetch(_DEADLINES)):
            return
        late = update(models.jobs).where(_J.state == "queued", _J.deadline <= now)
        self._change(late.values(state="failed", reason="its deadline passed while it waited", finished=now))

    def _check_quota(self, token: int | None, quota: int | None) -> None:
        if token is None or quota is None:
            return
        count = self._database.fetch_value(_UNFINISHED, token=token)
        if count >= quota:
            raise Busy(f"this token has {count} jobs that wait or run, of at most {quota}; wait for one to end", 10.0)

    def _change(self, change: Any) -> bool:
        with self._database.write() as connection:
            return bool(connection.execute(change).rowcount)

    def _keyed(self, key: str) -> Job | None:
        rows = self._database.fetch(_KEYED, key=key)
        return _read(rows[0]) if rows else None


def _held(lease: Lease) -> Update:
    """Return an UPDATE of the lease's job, which changes nothing if the lease has ended."""
    held = (_J.id == lease.job, _J.owner == lease.owner, _J.attempts == lease.number, _J.state == "running")
    return update(models.jobs).where(*held)


def _read(row: Sequence[Any]) -> Job:
    values = dict(zip(_COLUMNS, row, strict=True))
    values |= {"shapes": json.loads(values["shapes"]), "progress": json.loads(values["progress"])}
    return Job(**values | {"state": State(values["state"])})
