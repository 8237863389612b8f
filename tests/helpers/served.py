"""A store, a queue and workers as a worker without a database has them: through a server. What it is not given there
goes to the server's database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import delete

from tilewise.api.jobs.operations import OPERATIONS
from tilewise.api.jobs.remote import Link, kernels_of, queue_of, store_of, workers_of
from tilewise.db.jobs import Jobs, Lease, Request
from tilewise.db.records import Scope
from tilewise.db.signed_kernels import SignedKernels
from tilewise.db.sql import models
from tilewise.db.sql.database import Database
from tilewise.db.sql.sql_store import SqlStore
from tilewise.db.store import Store
from tilewise.db.workers import Workers

__all__ = ["ServedJobs", "ServedKernels", "ServedStore", "ServedWorkers", "empty"]


def _through(part: str) -> Any:
    """Have the part's operations of a class carried out by its object `served`."""

    def change(kind: type) -> type:
        for each in OPERATIONS.values():
            if each.part == part and each.method not in vars(kind):
                setattr(kind, each.method, _forward_leased(each.method) if each.leased else _forward(each.method))
        return kind

    return change


def _forward(name: str) -> Any:
    return lambda self, *given, **named: getattr(self.served, name)(*given, **named)


def _forward_leased(name: str) -> Any:
    return lambda self, scope, *given, **named: getattr(self.writing(scope.problem.kernel), name)(
        scope, *given, **named
    )


@_through("store")
class ServedStore(SqlStore):
    """A store that writes for a lease, by default that of a job of its own for each kernel, as a worker is given."""

    def __init__(self, database: Database, link: Link, lease: Lease | None = None) -> None:
        super().__init__(database)
        self.link, self._lease = link, lease
        self._made: dict[str, Store] = {}
        self._making = threading.Lock()

    @property
    def served(self) -> Store:
        return store_of(self.link, self._lease)

    def scopes(self, kernel: str | None = None, device: str | None = None) -> Iterator[Scope]:
        """A worker asks for one kernel's."""
        return super().scopes(None, device) if kernel is None else self.served.scopes(kernel, device)

    def writing(self, kernel: str) -> Store:
        with self._making:
            if kernel not in self._made:
                self._made[kernel] = store_of(self.link, self._lease or self._own(kernel))
            return self._made[kernel]

    def _own(self, kernel: str) -> Lease | None:
        if self._database._closed:
            return None
        job, _ = Jobs(self._database).submit(Request(kernel, "a1", [{"N": 1}], "float32", "model:None"))
        lease = queue_of(self.link).claim(job, "host/1/store")
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

    def store(
        self, store: SqlStore, lease: Lease, before: Callable[[], None] = lambda: None, *, number: int | None = None
    ) -> SqlStore:
        assert isinstance(store, ServedStore)
        return ServedStore(super().store(store, lease, before, number=number).database, store.link, lease)


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


def empty(store: SqlStore, *more: str) -> None:
    """Delete what tests have stored. Tokens stay, unless `more` tables name theirs."""
    with store.database.write() as connection:
        for table in (
            "answers",
            "trials",
            "scopes",
            "suggestions",
            "jobs",
            "workers",
            "signed_kernels",
            "helion_records",
            "artefacts",
            "compilations",
            *more,
        ):
            connection.execute(delete(models.metadata.tables[table]))
