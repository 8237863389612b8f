"""The contract of the queue: what the workers do with jobs, wherever it is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from tilewise.db.records import Shape

__all__ = ["Job", "Lease", "Queue", "State"]


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


class Queue(ABC):
    """Jobs that wait for a worker or run. Each change is conditional on what was read before, so that of two equal ones
    only the first has an effect. All methods raise `StoreError`."""

    @abstractmethod
    def get(self, number: int) -> Job:
        """Return a job; raises `NotFound`."""

    @abstractmethod
    def running(self) -> list[Job]:
        """Return the jobs that run, those submitted first first."""

    @abstractmethod
    def waiting(self, kernels: Collection[str]) -> set[str]:
        """Return the devices that queued jobs of these kernels wait for."""

    @abstractmethod
    def next(self, devices: Collection[str], kernels: Collection[str], toolchain: str = "") -> Job | None:
        """Return the next job of these kernels that asks for one of the devices, or None: the oldest of the highest
        priority. It asks for this toolchain or for none."""

    @abstractmethod
    def claim(self, job: Job, owner: str, *, host: str = "", lane: str = "") -> Lease | None:
        """Claim a queued job for `owner`, to run on a lane. Returns None if another process claimed it first.

        An owner that repeats its claim, since it does not know the answer, gets the same lease.
        """

    @abstractmethod
    def begin(self, lease: Lease, mark: int) -> None:
        """Note the mark from which trials count for a fresh job."""

    @abstractmethod
    def beat(self, lease: Lease, progress: Mapping[str, Any]) -> Job | None:
        """Record the owner's sign of life and progress. Returns None if the job is no longer the owner's."""

    @abstractmethod
    def finish(self, lease: Lease, state: State, reason: str, progress: Mapping[str, Any]) -> bool:
        """End the owner's job. Returns False, and changes nothing, if the job is no longer the owner's."""

    @abstractmethod
    def take_back(self, job: Job, why: str) -> bool:
        """Take a job from an owner that died: end it if it was cancelled or has no attempts left, else queue it again.

        Changes nothing, and returns False, if the owner has given a sign of life since the job was read.
        """

    @abstractmethod
    def give_back(self, job: Job) -> bool:
        """Queue a job whose owner is stopped on purpose, as `take_back` does, but without counting the attempt."""

    @abstractmethod
    def expire(self, now: datetime) -> None:
        """Fail the queued jobs whose deadline is over."""
