"""Workers: the processes that run jobs, each with the devices of its host.

A worker increments `beats` as a sign of life. `tilewise.api.jobs.fleet` decides from that which workers are alive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sqlalchemy import delete, insert, select, update

from tilewise.db.records import Clock
from tilewise.db.sql import models
from tilewise.db.sql.database import Database

__all__ = ["Lane", "Worker", "Workers"]


@dataclass(frozen=True, slots=True)
class Lane:
    """A device of a worker, which runs one job at a time on it.

    `id` names it on its host, such as `cuda:1`. `name` is the device name that its results are stored under.
    `toolchain` is empty if it is unknown until the device is opened.
    """

    id: str
    name: str
    clock: str
    toolchain: str = ""

    @property
    def kind(self) -> str:
        """The id without a chip's number."""
        numbered = re.fullmatch(r"([a-z]+):[0-9]+", self.id)
        return numbered[1] if numbered else self.id

    @property
    def requests(self) -> frozenset[str]:
        """Words by which jobs ask to run here: the id, any chip of its kind or, where times are measured, the name."""
        return frozenset({self.id, self.kind, *([self.name] if self.clock == Clock.MEASURED else [])})

    def takes(self, device: str, toolchain: str) -> bool:
        """Return whether a job that asks for this device and toolchain may run here; an empty toolchain is any."""
        return device in self.requests and toolchain in ("", self.toolchain)


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that runs jobs on its host's lanes. `kernels` are those it knows; a `draining` one takes no more."""

    id: int
    owner: str
    host: str
    version: str
    lanes: Sequence[Lane]
    kernels: Sequence[str]
    beats: int
    draining: bool
    started: datetime


_W = models.workers.c
_ALL = select(*(_W[name] for name in Worker.__dataclass_fields__)).order_by(_W.id)


class Workers:
    """The workers in a database. All methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, owner: str, host: str, version: str, lanes: Sequence[Lane], kernels: Sequence[str]) -> int:
        """Add a worker and return its id. It takes the place of an equal one of this owner's without a sign of life."""
        values = {
            "owner": owner,
            "host": host,
            "version": version,
            "lanes": json.dumps([asdict(lane) for lane in lanes]),
            "kernels": json.dumps(sorted(kernels)),
            "beats": 0,
            "draining": False,
            "started": datetime.now(UTC),
        }
        same = [_W[name] == values[name] for name in ("owner", "host", "lanes", "kernels", "beats")]
        with self._database.write() as connection:
            connection.execute(delete(models.workers).where(*same))
            worker_id: int = connection.execute(insert(models.workers).values(values).returning(_W.id)).scalar_one()
            return worker_id

    def beat(self, worker_id: int, *, draining: bool = False) -> bool:
        """Record a sign of life. Returns False if the worker is no longer registered: it was taken for lost."""
        change = update(models.workers).where(_W.id == worker_id)
        with self._database.write() as connection:
            return bool(connection.execute(change.values(beats=_W.beats + 1, draining=draining)).rowcount)

    def leave(self, worker_id: int) -> None:
        with self._database.write() as connection:
            connection.execute(delete(models.workers).where(_W.id == worker_id))

    def forget(self, worker: Worker) -> None:
        """Remove a worker that is lost, unless it has given a sign of life since it was read."""
        with self._database.write() as connection:
            connection.execute(delete(models.workers).where(_W.id == worker.id, _W.beats == worker.beats))

    def all(self) -> list[Worker]:
        """Return the registered workers, those that registered first first."""
        names = tuple(Worker.__dataclass_fields__)
        rows = (dict(zip(names, row, strict=True)) for row in self._database.fetch(_ALL))
        return [
            Worker(
                **row
                | {"lanes": [Lane(**lane) for lane in json.loads(row["lanes"])], "kernels": json.loads(row["kernels"])}
            )
            for row in rows
        ]
