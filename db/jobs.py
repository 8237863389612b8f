"""Jobs: requested tunings, queued until they are done, and each run by one process at a time.

The process that runs a job is its *owner* and increments `beats` as a sign of life. `tilewise.api.jobs.runner` decides
whether an owner is still alive. Here every change is conditional on the job's state before it. So only one of two
processes that claim a job gets it, and an owner that lost its job can no longer end it.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Integer, bindparam, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from tilewise.db.records import Shape, canonical_json, digest
from tilewise.db.sql import models
from tilewise.db.sql.database import Database
from tilewise.errors import NotFound, StoreError

__all__ = ["ATTEMPTS", "Job", "Jobs", "Request", "State"]

ATTEMPTS = 10
"""Times that a job is started before it fails for good; one that kills its process would otherwise restart forever."""


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
    request whose meaning depends on what is stored: after a write it is another request.
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

    @property
    def key(self) -> str:
        """A digest that is equal for equal requests, whatever the order of their shapes."""
        shapes = sorted(map(canonical_json, self.shapes))
        budget = [self.trials, self.seconds, self.search, self.seed]
        budget += [] if self.revision is None else [self.revision]
        return digest([self.kernel, self.source_hash, shapes, self.dtype, self.device, *budget])


@dataclass(frozen=True, slots=True)
class Job:
    """A request and its progress. `attempts` counts how often it was started, `beats` the owner's signs of life."""

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
    cancelling: bool = False
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: datetime | None = None
    finished: datetime | None = None


_J = models.jobs.c
_COLUMNS = tuple(name for name in Job.__dataclass_fields__)
_ALL = select(*(_J[name] for name in _COLUMNS))
_LIMIT = bindparam("most", type_=Integer)
_ONE = _ALL.where(_J.id == bindparam("id"))
_KEYED = _ALL.where(_J.key == bindparam("key"), text("state IN ('queued', 'running', 'done')"))
_PAGE = _ALL.where(_J.id < bindparam("before")).order_by(_J.id.desc()).limit(_LIMIT)
_RUNNING = _ALL.where(_J.state == "running").order_by(_J.id)
_NEXT = (
    _ALL.where(_J.state == "queued", _J.device == bindparam("device"), _J.kernel == bindparam("kernel"))
    .order_by(_J.priority.desc(), _J.id)
    .limit(_LIMIT)
)
_WAITING = select(_J.device, _J.kernel).where(_J.state == "queued").distinct()
_LAST = 2**63 - 1


class Jobs:
    """The jobs in a database. All methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def submit(self, request: Request, *, priority: int = 0) -> tuple[Job, bool]:
        """Return this request's job, and whether it is new. A queued, running or done job serves an equal request."""
        if known := self._keyed(request.key):
            return known, False
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

    def page(self, *, before: int | None = None, most: int = 50) -> list[Job]:
        """Return a page of jobs, newest first. Pass the last job's id as `before` to get the next page."""
        return [_read(row) for row in self._database.fetch(_PAGE, before=before or _LAST, most=most)]

    def running(self) -> list[Job]:
        return [_read(row) for row in self._database.fetch(_RUNNING)]

    def waiting(self, kernels: Container[str]) -> set[str]:
        """Return the devices that queued jobs of these kernels wait for."""
        return {device for device, kernel in self._database.fetch(_WAITING) if kernel in kernels}

    def next(self, device: str, kernels: Container[str]) -> Job | None:
        """Return the device's next job among these kernels, the oldest of the highest priority, or None."""
        queued = [kernel for waits, kernel in self._database.fetch(_WAITING) if waits == device and kernel in kernels]
        rows = (row for kernel in queued for row in self._database.fetch(_NEXT, device=device, kernel=kernel, most=1))
        return min(map(_read, rows), key=lambda job: (-job.priority, job.id), default=None)

    def claim(self, job: Job, owner: str) -> bool:
        """Claim a queued job for `owner`. Returns False if another process claimed it first."""
        change = update(models.jobs).where(_J.id == job.id, _J.state == "queued", _J.attempts == job.attempts)
        claimed = {"state": "running", "owner": owner, "attempts": job.attempts + 1, "beats": 0}
        return self._change(change.values(**claimed, started=datetime.now(UTC)))

    def beat(self, number: int, owner: str, progress: Mapping[str, Any]) -> Job | None:
        """Record the owner's sign of life and progress. Returns None if the job is no longer the owner's."""
        mine = update(models.jobs).where(_J.id == number, _J.owner == owner, _J.state == "running")
        if not self._change(mine.values(beats=_J.beats + 1, progress=json.dumps(dict(progress)))):
            return None
        return self.get(number)

    def finish(self, number: int, owner: str, state: State, reason: str, progress: Mapping[str, Any]) -> bool:
        """End the owner's job. Returns False, and changes nothing, if the job is no longer the owner's."""
        mine = update(models.jobs).where(_J.id == number, _J.owner == owner, _J.state == "running")
        ended = {"state": state.value, "reason": reason, "progress": json.dumps(dict(progress))}
        return self._change(mine.values(**ended, finished=datetime.now(UTC)))

    def take_back(self, job: Job, why: str) -> bool:
        """Take a job from a dead owner: end it if it was cancelled or has no attempts left, else queue it again."""
        gone = update(models.jobs).where(
            _J.id == job.id, _J.state == "running", _J.owner == job.owner, _J.beats == job.beats
        )
        if job.cancelling:
            ended = {"state": "cancelled", "finished": datetime.now(UTC)}
        elif job.attempts >= ATTEMPTS:
            reason = f"started {job.attempts} times and never finished: {why}"
            ended = {"state": "failed", "reason": reason, "finished": datetime.now(UTC)}
        else:
            ended = {"state": "queued", "owner": ""}
        return self._change(gone.values(**ended))

    def cancel(self, number: int) -> Job:
        """Cancel a queued job, or ask a running job's owner to stop. A finished job is unchanged. Raises `NotFound`."""
        waits = update(models.jobs).where(_J.id == number, _J.state == "queued")
        ended = {"state": "cancelled", "finished": datetime.now(UTC)}
        if not self._change(waits.values(**ended)):
            runs = update(models.jobs).where(_J.id == number, _J.state == "running")
            self._change(runs.values(cancelling=True))
        return self.get(number)

    def _change(self, change: Any) -> bool:
        with self._database.write() as connection:
            return bool(connection.execute(change).rowcount)

    def _keyed(self, key: str) -> Job | None:
        rows = self._database.fetch(_KEYED, key=key)
        return _read(rows[0]) if rows else None


def _read(row: Sequence[Any]) -> Job:
    values = dict(zip(_COLUMNS, row, strict=True))
    values |= {"shapes": json.loads(values["shapes"]), "progress": json.loads(values["progress"])}
    return Job(**values | {"state": State(values["state"])})
