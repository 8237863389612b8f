"""The queue, store and kernels of a worker, in a database or on a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from tilewise.api.jobs.remote import Link, Server, kernels_of, queue_of, store_of, workers_of
from tilewise.db.jobs import Jobs
from tilewise.db.queue import Lease, Queue
from tilewise.db.signed_kernels import SignedKernels
from tilewise.db.sql.sql_store import open_store
from tilewise.db.store import Store
from tilewise.db.workers import Workers
from tilewise.kernels.signing import Shelf

__all__ = ["Place", "Work", "open_work"]

Place = str | Server
"""The URL of a database, or a server."""


@dataclass(frozen=True, slots=True)
class Work:
    """A queue and what belongs to it.

    `store_under` returns the store for the trials of a lease, which calls a function before each write. What that
    raises refuses the write.
    """

    jobs: Queue
    workers: Workers
    kernels: Shelf
    store_under: Callable[[Lease, Callable[[], None]], Store]


@contextmanager
def open_work(place: Place, *, patience: float = 0.0) -> Iterator[Work]:
    """Open what is at a place. A server that does not answer is asked again for `patience` seconds.

    Raises `StoreError`; of a server, only when it is used.
    """
    if isinstance(place, Server):
        with closing(Link(place, patience=patience)) as link:
            yield Work(queue_of(link), workers_of(link), kernels_of(link), partial(store_of, link))
        return
    with open_store(place, create=True) as store:
        database, jobs = store.database, Jobs(store.database)
        store_under = partial(jobs.store, store)
        yield Work(jobs, Workers(database), SignedKernels(database), store_under)
