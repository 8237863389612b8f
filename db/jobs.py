"""Jobs: requested tunings, queued until they are done, and each run by one process at a time.

The process that runs a job is its *owner* and increments `beats` as a sign of life. `tilewise.api.jobs.runner` decides
whether an owner is still alive. Here every change is conditional on the job's state before it. So only one of two
processes that claim a job gets it. Each claim is a `Lease` with a larger number. All writes of an owner check its lease
in their own transaction: an owner that lost its job, and wakes up after a pause, stores nothing and ends nothing.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Integer, Select, Update, bindparam, delete, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from tilewise.db.records import Shape, canonical_json, digest
from tilewise.db.sql import models
from tilewise.db.sql.database import Database
from tilewise.db.sql.leased_store import LeasedStore
from tilewise.db.sql.sql_store import SqlStore
from tilewise.errors import Busy, NotFound, StoreError, UsageError

__all__ = ["ATTEMPTS", "Job", "Jobs", "Lease", "LeaseLost", "Request", "State"]

ATTEMPTS = 10
"""Starts in a row without a new trial after which a job fails; one that kills its process would restart forever."""


class LeaseLost(StoreError):
    """A write for a job that its process no longer owns. Nothing was written."""


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (State.DONE, State.FAILED, State.CANCELLED)


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


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim of a job, which its owner has until it ends the job or gives it back, or another takes it back."""

    job: int
    owner: str
    number: int


@dataclass(frozen=True, slots=True)
class Job:
    """A request and its progress.

    `attempts` counts its starts and is the number of its latest lease, `beats` the owner's signs of life, `stored` the
    configs that the owner tried first, and `fruitless` the starts in a row, before this one, that tried none. It runs,
    or ran last, on the device `lane` of `host`. `token` is the id of the token that it was requested with. Trials
    recorded before `mark` do not count for a `fresh` job.
    """

    id: int
    kernel: str
    shapes: Sequence[Shape]
    dtype: str
    device: str
    trials: int | None
    seconds: float | None
    search: str
    seed: int
    priority: int
    state: State
    reason: str
    progress: Mapping[str, Any] = field(default_factory=dict)
    owner: str = ""
    beats: int = 0
    attempts: int = 0
    stored: int = 0
    fruitless: int = 0
    cancelling: bool = False
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: datetime | None = None
    finished: datetime | None = None
    host: str = ""
    lane: str = ""
    toolchain: str = ""
    fresh: bool = False
    mark: int | None = None
    deadline: datetime | None = None
    token: int | None = None

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.owner, self.attempts)


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


class Jobs:
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
        """Return a job; raises `NotFound`."""
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

    def waiting(self, kernels: Container[str]) -> set[str]:
        """Return the devices that queued jobs of these kernels wait for."""
        return {device for device, kernel, _ in self._database.fetch(_WAITING) if kernel in kernels}

    def next(self, devices: Collection[str], kernels: Container[str], toolchain: str = "") -> Job | None:
        """Return the next job of these kernels that asks for one of the devices, or None: the oldest of the highest
        priority. It asks for this toolchain or for none."""
        queued = [
            {"device": device, "kernel": kernel, "toolchain": wanted}
            for device, kernel, wanted in self._database.fetch(_WAITING)
            if device in devices and kernel in kernels and wanted in ("", toolchain)
        ]
        rows = (row for fields in queued for row in self._database.fetch(_NEXT, most=1, **fields))
        return min(map(_read, rows), key=lambda job: (-job.priority, job.id), default=None)

    def claim(self, job: Job, owner: str, *, host: str = "", lane: str = "") -> Lease | None:
        """Claim a queued job for `owner`, to run on a lane. Returns None if another process claimed it first."""
        lease = Lease(job.id, owner, job.attempts + 1)
        change = update(models.jobs).where(_J.id == job.id, _J.state == "queued", _J.attempts == job.attempts)
        claimed = {"state": "running", "owner": owner, "attempts": lease.number, "beats": 0, "stored": 0}
        claimed |= {"host": host, "lane": lane}
        return lease if self._change(change.values(**claimed, started=datetime.now(UTC))) else None

    def store(self, store: SqlStore, lease: Lease) -> SqlStore:
        """Return the store for the owner's trials. Its writes raise `LeaseLost` once the job is not the owner's."""

        def check(connection: Connection, new: int) -> None:
            if connection.execute(_held(lease).values(stored=_J.stored + new)).rowcount == 0:
                raise LeaseLost(f"job {lease.job} was taken from its process, which therefore stores nothing more")

        return LeasedStore(store, check)

    def begin(self, lease: Lease, mark: int) -> None:
        """Note the mark from which trials count for a fresh job."""
        self._change(_held(lease).where(_J.mark.is_(None)).values(mark=mark))

    def beat(self, lease: Lease, progress: Mapping[str, Any]) -> Job | None:
        """Record the owner's sign of life and progress. Returns None if the job is no longer the owner's."""
        if not self._change(_held(lease).values(beats=_J.beats + 1, progress=json.dumps(dict(progress)))):
            return None
        return self.get(lease.job)

    def finish(self, lease: Lease, state: State, reason: str, progress: Mapping[str, Any]) -> bool:
        """End the owner's job. Returns False, and changes nothing, if the job is no longer the owner's."""
        ended = {"state": state.value, "reason": reason, "progress": json.dumps(dict(progress))}
        return self._change(_held(lease).values(**ended, finished=datetime.now(UTC)))

    def take_back(self, job: Job, why: str) -> bool:
        """Take a job from an owner that died: end it if it was cancelled or has no attempts left, else queue it again.

        Changes nothing, and returns False, if the owner has given a sign of life since the job was read.
        """
        fruitless = 0 if job.stored else job.fruitless + 1
        if fruitless >= ATTEMPTS and not job.cancelling:
            reason = f"started {fruitless} times in a row without a new trial: {why}"
            return self._return(job, state="failed", reason=reason, finished=datetime.now(UTC))
        return self._return(job, fruitless=fruitless)

    def give_back(self, job: Job) -> bool:
        """Queue a job whose owner is stopped on purpose, as `take_back` does, but without counting the attempt."""
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
            key = self._database.fetch(_KEY, id=number)[0][0]
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
        """Fail the queued jobs whose deadline is over."""
        if all(deadline > now for (deadline,) in self._database.fetch(_DEADLINES)):
            return
        late = update(models.jobs).where(_J.state == "queued", _J.deadline <= now)
        self._change(late.values(state="failed", reason="its deadline passed while it waited", finished=now))

    def _check_quota(self, token: int | None, quota: int | None) -> None:
        if token is None or quota is None:
            return
        count = self._database.fetch(_UNFINISHED, token=token)[0][0]
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
