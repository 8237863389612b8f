"""Bounds on the operations of a token with the right `work`: it changes only jobs and workers of its own.

An owner that a token brings is stored with the token's number before its last part, so that a lease is of no use to
another token, even to one that reads it. The token itself sees its owners as it named them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from tilewise.api.jobs.liveness import Liveness
from tilewise.db.jobs import Jobs
from tilewise.db.queue import Job, Lease
from tilewise.db.records import Scope
from tilewise.db.workers import Worker, Workers
from tilewise.errors import Busy, NotFound, UsageError

__all__ = ["WorkBounds"]

_MOST_WORKERS = 1000
"""Registered workers of a token; those without a sign of life are removed."""
_LARGEST_REGISTRATION = 1 << 16
_LONGEST_PAGE = 1000
_RETRY_SECONDS = 10.0
_OWNER = re.compile(r"(?P<host>[^\x00-\x1f]{0,300}/)?(?P<own>[\w-]{1,100})", re.ASCII)

H = TypeVar("H", Job, Lease, Worker)


class WorkBounds:
    """The bounds of one token's operations. `seen` are the signs of life that this server has seen of all others."""

    def __init__(self, token: int, jobs: Jobs, workers: Workers, seen: Liveness) -> None:
        self._mark, self._jobs, self._workers, self._seen = f"work-{token}/", jobs, workers, seen

    def stored(self, held: H) -> H:
        """Return a lease, job or worker of this token with its owner as it is stored. Raises `UsageError`."""
        return replace(held, owner=self.stored_owner(held.owner))

    def stored_owner(self, owner: str) -> str:
        if (parts := _OWNER.fullmatch(owner)) is None:
            raise UsageError(
                f"the owner is {owner[:60]!r}; expected HOST/PROCESS/NAME, with letters and digits as name"
            )
        return f"{parts['host'] or ''}{self._mark}{parts['own']}"

    def shown(self, result: Any) -> Any:
        """Return an operation's result with this token's owners as it named them."""
        if isinstance(result, list):
            return [self.shown(each) for each in result]
        if isinstance(result, Job | Lease | Worker) and self._owns(result):
            host, _, own = result.owner.rpartition("/")
            return replace(result, owner=host[: -len(self._mark) + 1] + own)
        if isinstance(result, Job | Worker):
            self._is_lost(result)  # the server's minute begins when it first shows another's sign of life
        return result

    def bound(self, name: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the arguments with which to carry out an operation, None if it changes nothing.

        Raises `UsageError`, and `Busy` if the token has too many workers.
        """
        arguments = dict(given)
        if isinstance(lease := arguments.get("lease"), Lease):
            arguments["lease"] = self.stored(lease)
        part, _, method = name.partition(".")
        match part:
            case "jobs":
                return self._of_jobs(method, arguments)
            case "workers":
                return self._of_workers(method, arguments)
            case "store":
                return self._of_store(method, arguments)
        return arguments

    def check_scope(self, lease: Lease, scope: Scope) -> None:
        """Raise `UsageError` if a write under a lease is for another kernel than its job's."""
        try:
            kernel = self._jobs.get(lease.job).kernel
        except NotFound:  # its record was deleted: the lease is lost
            return
        if scope.problem.kernel != kernel:
            raise UsageError(f"job {lease.job} is for {kernel}; its worker stores nothing for another kernel")

    def _of_jobs(self, method: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        match method:
            case "claim":
                arguments["owner"] = self.stored_owner(arguments["owner"])
            case "finish" if not arguments["state"].is_final:
                raise UsageError(f"the state is {arguments['state'].value!r}; a job ends as done, failed or cancelled")
            case "expire":
                arguments["now"] = datetime.now(UTC)
            case "take_back" | "give_back":
                found = self._job(arguments["job"], may_be_lost=method == "take_back")
                return None if found is None else arguments | {"job": found}
        return arguments

    def _of_workers(self, method: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        match method:
            case "register":
                return self._registration(arguments)
            case "beat" | "leave" if self._worker(arguments["worker_id"]) is None:
                return None
            case "forget" if not self._may_forget(arguments["worker"]):
                return None
        return arguments

    def _of_store(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "results" if "most" in arguments:
                arguments["most"] = max(1, min(arguments["most"], _LONGEST_PAGE))
            case "scopes" if arguments.get("kernel") is None:
                raise UsageError("a worker asks for the scopes of one kernel; name it")
        return arguments

    def _owns(self, held: Job | Lease | Worker) -> bool:
        return f"/{held.owner}".rpartition("/")[0].endswith(f"/{self._mark[:-1]}")

    def _job(self, read: Job, *, may_be_lost: bool) -> Job | None:
        """Return the job as it is stored, unless it has changed since it was read or is not this token's to return."""
        now = self._jobs.get(read.id)
        if (now.attempts, now.beats, now.stored) != (read.attempts, read.beats, read.stored):
            return None
        return now if self._owns(now) or (may_be_lost and self._is_lost(now)) else None

    def _registration(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if len(msgspec.json.encode(arguments)) > _LARGEST_REGISTRATION:
            raise UsageError(f"the worker's lanes and kernels take more than {_LARGEST_REGISTRATION} bytes")
        if sum(map(self._owns, self._workers.all())) >= _MOST_WORKERS:
            raise Busy(
                f"this token has {_MOST_WORKERS} workers; wait until those that ended are removed", _RETRY_SECONDS
            )
        return arguments | {"owner": self.stored_owner(arguments["owner"])}

    def _worker(self, number: int) -> Worker | None:
        return next((each for each in self._workers.all() if each.id == number and self._owns(each)), None)

    def _may_forget(self, read: Worker) -> bool:
        now = next((each for each in self._workers.all() if each.id == read.id), None)
        if now is None or now.beats != read.beats:
            return False
        return self._owns(now) or self._is_lost(now)

    def _is_lost(self, held: Job | Worker) -> bool:
        starts = held.attempts if isinstance(held, Job) else 0
        return self._seen.is_lost((type(held), held.id), held.owner, (starts, held.beats))
