"""A store, a queue and workers as a worker without a database has them: through a server. What it is not given there
goes to the server's database."""

from __future__ import annotations

import threading
from typing import Any

from sqlalchemy import delete

from tilewise.api.jobs.operations import OPERATIONS
from tilewise.api.jobs.remote import Link, kernels_of, queue_of, store_of, workers_of
from tilewise.db.jobs import Jobs, Lease, Request
from tilewise.db.signed_kernels import SignedKernels
from tilewise.db.sql import models
from tilewise.db.sql.database import Database
from tilewise.db.sql.sql_store import SqlStore
from tilewise.db.store import Store
from tilewise.db.workers import Workers

__all__ = ["ServedJobs", "ServedKernels", "ServedStore", "ServedWorkers", "empty"]

_OWNED = Request("of the store", "a1", [{"N": 1}], "float32", "model:None")


def _through(part: str) -> Any:
    """Have the part's operations of a class carried out by its object `served`."""

    def change(kind: type) -> type:
        for each in OPERATIONS.values():
            if each.part == part:
                setattr(kind, each.method, _forward(each.method))
        return kind

    return change


def _forward(name: str) -> Any:
    return lambda self, *given, **named: getattr(self.served, name)(*given, **named)


@_through("store")
class ServedStore(SqlStore):
    """A store that writes for a lease, by default that of a job of its own."""

    def __init__(self, database: Database, link: Link, lease: Lease | None = None) -> None:
        super().__init__(database)
        self.link, self._lease, self._made = link, lease, None
        self._making = threading.Lock()

    @property
    def served(self) -> Store:
        with self._making:
            if self._made is None:
                self._made = store_of(self.link, self._lease or self._own())
            return self._made

    def _own(self) -> Lease | None:
        if self._database._closed:
            return None
        jobs = Jobs(self._database)
        lease = jobs.claim(jobs.submit(_OWNED)[0], "the store's")
        assert lease is not None
        return lease

    def close(self) -> None:
        self.link.close()
        super().close()


@_through("jobs")
class ServedJobs(Jobs):
    def __init__(self, store: ServedStore) -> None:
        super().__init__(store.database)
        self.served = queue_of(store.link)

    def store(self, store: SqlStore, lease: Lease, number: int | None = None) -> SqlStore:
        assert isinstance(store, ServedStore)
        return ServedStore(super().store(store, lease, number).database, store.link, lease)


@_through("workers")
class ServedWorkers(Workers):
    def __init__(self, store: ServedStore) -> None:
        super().__init__(store.database)
        self.served = workers_of(store.link)


@_through("kernels")
class ServedKernels(SignedKernels):
    def __init__(self, store: ServedStore) -> None:
        super().__init__(store.database)
        self.served = kernels_of(store.link)


def empty(store: SqlStore) -> None:
    """Delete all that tests have stored."""
    with store.database.write() as connection:
        for table in ("trials", "scopes", "suggestions", "jobs", "workers", "signed_kernels", "helion_records"):
            connection.execute(delete(models.metadata.tables[table]))
