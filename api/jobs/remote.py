"""The queue and the store of a server, for a worker without a database: each method of theirs is a request.

A request that gets no answer is sent again, less and less often. None has an effect twice: changes of jobs are
conditional, and a lease numbers its writes to the store. Errors are those of a database.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import tilewise
from tilewise.api.jobs.operations import OPERATIONS, Operation
from tilewise.db.evidence import refuse_flaws
from tilewise.db.queue import Lease, Queue
from tilewise.db.store import Store
from tilewise.db.workers import Workers
from tilewise.errors import Busy, LeaseLost, NotFound, StoreError, TilewiseError, Unavailable
from tilewise.kernels.signing import Shelf

__all__ = ["Link", "Server", "kernels_of", "queue_of", "store_of", "workers_of"]

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Server:
    """The address of a server, and a token with the right `work` there."""

    url: str
    token: str | None


class Link:
    """A connection to a server that repeats requests for `patience` seconds while it gets no answer.

    It may be used from several threads.
    """

    def __init__(self, server: Server, *, patience: float = 0.0) -> None:
        from tilewise.client import Client

        self._client = Client(server.url, token=server.token)
        self._patience = patience
        self._is_lost = self._closed = False

    def check(self) -> None:
        """Raise `Unavailable` if the server cannot be reached or is older than this worker, and `Forbidden`."""
        try:
            document = self._client.openapi()
        except NotFound:
            document = {}
        if document.get("info", {}).get("title") != "tilewise":
            raise Unavailable(f"{self._client.url} is no tilewise server")
        operation = document["paths"].get("/v1/work/{operation}", {}).get("post", {"parameters": []})
        known = {name for one in operation["parameters"] for name in one["schema"].get("enum", ())}
        if not known >= OPERATIONS.keys():
            raise Unavailable(
                f"the server at {self._client.url} is older than this worker (tilewise {document['info']['version']}, "
                f"here {tilewise.__version__}); upgrade the server first"
            )
        self._client.work("jobs.running", {})

    def call(self, operation: Operation, arguments: Mapping[str, Any], **leased: Any) -> Any:
        """Carry out an operation. Raises `NotFound`, and `StoreError` for all else that goes wrong."""
        give_up, pause = time.monotonic() + self._patience, _FIRST_PAUSE_SECONDS
        while True:
            if self._closed:
                raise StoreError(f"the store of {self._client.url} is closed; open it again")
            try:
                answer = self._client.work(cast(Any, operation.name), arguments, **leased)
            except (NotFound, LeaseLost):
                raise
            except (Unavailable, Busy) as error:
                if time.monotonic() + pause > give_up:
                    raise StoreError(str(error)) from error
                self._note(error)
            except TilewiseError as error:
                raise StoreError(str(error)) from error
            else:
                self._note(None)
                return operation.result_from_json(answer["result"])
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def close(self) -> None:
        self._closed = True
        self._client.close()

    def _note(self, error: TilewiseError | None) -> None:
        """Log the first failure, and the first success after it."""
        if error is not None and not self._is_lost:
            _log.warning("%s; trying again", error)
        if error is None and self._is_lost:
            _log.warning("%s answers again", self._client.url)
        self._is_lost = error is not None


def queue_of(link: Link) -> Queue:
    return cast(Queue, _implemented(Queue, "jobs", link))


def workers_of(link: Link) -> Workers:
    return cast(Workers, _implemented(Workers, "workers", link))


def kernels_of(link: Link) -> Shelf:
    return cast(Shelf, _implemented(Shelf, "kernels", link))


def store_of(link: Link, lease: Lease | None = None, before: Callable[[], None] = lambda: None) -> Store:
    """Return the server's store, as far as a tuning needs it. It writes for the job of a lease only, after `before`."""
    return cast(Store, _implemented(Store, "store", link, _Writer(link, lease, before), close=lambda _: link.close()))


class _Writer:
    """Numbers the writes of a lease, and sends one after the other. Its process alone has the lease."""

    def __init__(self, link: Link, lease: Lease | None, before: Callable[[], None]) -> None:
        self._link, self._lease, self._before = link, lease, before
        self._numbers = itertools.count(time.monotonic_ns())  # rises over all writers of a process
        self._one_at_a_time = threading.Lock()

    def write(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        if self._lease is None:
            raise StoreError("a worker without a database stores trials of its jobs only")
        with self._one_at_a_time:
            self._before()
            return self._link.call(operation, arguments, lease=asdict(self._lease), number=next(self._numbers))


def _implemented(
    contract: type, part: str, link: Link, writer: _Writer | None = None, **more: Callable[..., Any]
) -> object:
    """Return an object of a subclass of the contract. Its methods are requests, or are refused."""
    refused = dict.fromkeys(getattr(contract, "__abstractmethods__", ()), _refuse)
    methods = {each.method: _request(each, link, writer) for each in OPERATIONS.values() if each.part == part}
    made = type(f"Remote{contract.__name__}", (contract,), refused | methods | more | {"__init__": lambda _: None})
    return made()


def _request(operation: Operation, link: Link, writer: _Writer | None) -> Callable[..., Any]:
    def method(_: object, *given: Any, **named: Any) -> Any:
        by_name = operation.by_name(given, named)
        if operation.name == "store.record":
            refuse_flaws(by_name["trials"])
        arguments = operation.to_json(by_name)
        return writer.write(operation, arguments) if writer and operation.leased else link.call(operation, arguments)

    return method


def _refuse(*_: Any, **__: Any) -> None:
    raise StoreError("a worker without a database asks its server only for what a tuning needs")
