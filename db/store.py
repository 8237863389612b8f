"""The store's contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from tilewise.db.records import Config, Question, Result, Scope, Shape, Status, Suggestion, Trial

__all__ = ["START", "Change", "Listed", "MergeReport", "Place", "Store", "Wanted", "Written"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filter of a listing; None matches everything. `dims` gives some sizes and flags."""

    kernel: str | None = None
    dtype: str | None = None
    device: str | None = None
    dims: Shape = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A scope whose winner changed to another config or another time of the same one. None means no winner."""

    scope: Scope
    before: Trial | None
    after: Trial | None


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a listing of trials: after this trial of this scope."""

    scope: int = 0
    trial: int = 0


START = Place()


class Written(NamedTuple):
    """A position in a listing of results: the revision of the last write to a scope, and the scope."""

    revision: int
    scope: int


@dataclass(frozen=True, slots=True)
class Listed:
    """A trial in a listing, current or superseded."""

    place: Place
    scope: Scope
    trial: Trial
    current: bool


@dataclass(frozen=True, slots=True)
class MergeReport:
    """A merge's outcome: scopes offered; trials that were new, replaced one or changed nothing; the number of `changed`
    winners, and the `changes` of all or of the first ones."""

    scopes: int
    added: int
    updated: int
    unchanged: int
    changes: tuple[Change, ...] = field(default=(), compare=False)
    changed: int = field(default=0, compare=False)


class Store(ABC):
    """A store of all trials that answers which config is best.

    Each call is one transaction: once it returns, its effect survives a kill of the process; if it raises
    `StoreError`, it had no effect. Several processes may use a store at once; a writer waits for other writers.

    A trial is *current* until a later trial of the same scope and config is recorded or its scope is retired. Only
    current trials count in results. The winner is the fastest current trial that is `correct` and verified. A trial
    that a comparison declared the winner has a `time_to_beat_us`; it is ranked by that time and goes first among
    equals. Other ties go to the smaller ordinal (none counts as last), then to the earlier record. Impossible trials
    (correct without a time, verified but failed, a time that is not positive) are refused with `StoreError`.
    """

    @abstractmethod
    def record(self, scope: Scope, trials: Sequence[Trial]) -> None:
        """Store these trials, all or none. They supersede the current trials of the same configs."""

    @abstractmethod
    def merge(
        self, evidence: Iterable[tuple[Scope, Sequence[Trial]]], *, most_changes: int | None = None
    ) -> MergeReport:
        """Store, all or none, the imported trials that are better evidence than the current ones of the same configs.

        A wrong output ranks highest, then a verified trial, then another failure, then an unverified time. Within a
        rank more samples count, then having been declared the winner, then the later `created`. So merging the same
        evidence twice changes nothing, and the order of merges does not matter. The evidence is taken one by one, and
        the report keeps at most `most_changes` changes.
        """

    @abstractmethod
    def suggest(self, suggestions: Sequence[Suggestion]) -> int:
        """Store these recommendations, all or none. Returns how many were new."""

    @abstractmethod
    def suggestions(self, kernel: str) -> list[Suggestion]:
        """Return the configs recommended for a kernel, in the order in which they were first stored."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Store]:
        """Return the store in its present state, for reading: writes during the block are not visible in it.

        An in-memory store, which nobody else can write, is returned as it is.
        """

    @abstractmethod
    def verify(
        self,
        scope: Scope,
        config: Config,
        *,
        agreed: bool,
        reason: str = "",
        status: Status = Status.CORRECTNESS,
    ) -> None:
        """Mark the current trial of `config` as verified, or as failed with this status and reason.

        Raises `NotFound` if the scope has no current trial of that config. Marking a failed trial as verified is
        refused.
        """

    @abstractmethod
    def mark(self) -> int:
        """Return the present point in the order of recorded trials. A clock would not do, since it may be set back."""

    @abstractmethod
    def revision(self) -> int:
        """Return a number that rises with every write to trials."""

    @abstractmethod
    def written(self, since: int) -> list[Scope]:
        """Return the scopes whose trials were written to after that revision, each once."""

    @abstractmethod
    def retire(self, scope: Scope, mark: int) -> int:
        """Make the scope's trials recorded before `mark` history: stored, but no longer current. Returns how many."""

    @abstractmethod
    def trials(self, scope: Scope, *, since: int = 0) -> list[Trial]:
        """Return the scope's current trials, or only those recorded since a mark, in recorded order."""

    @abstractmethod
    def result(self, scope: Scope) -> Result:
        """Return the scope's result; its winner is None if nothing is verified, its counts 0 if nothing was tried."""

    @abstractmethod
    def lookup(self, question: Question, *, source_hash: str | None = None) -> Result | None:
        """Return the best known result for exactly this problem and device name, or None.

        Considers scopes that have a winner and, if one is given, this source hash. Measured goes before modelled, then
        the latest winner.
        """

    @abstractmethod
    def answers(self, question: Question, *, source_hash: str | None = None) -> list[Result]:
        """Return all results for exactly this question, in order of preference; `lookup` returns the first."""

    @abstractmethod
    def shape_pages(
        self, kernel: str, dtype: str, device: str, *, last: int = 0
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield pages of the scopes' dims, for an index of shapes that is updated now and then.

        A page is the id of its last scope and, by source hash, the dims as a JSON list in any order, without spaces.
        Only scopes with an id above `last` are included. They need not have a winner (yet).
        """

    @abstractmethod
    def draw(self, kernel: str, dtype: str, device: str, source_hash: str | None, *, most: int) -> list[Scope]:
        """Return the `most` scopes with the smallest keys of each source, clock, toolchain and core count.

        Keys are hashes, so this is as good as a random draw, and later scopes hardly change it. A `source_hash` of None
        means any source.
        """

    @abstractmethod
    def families(self) -> Iterator[tuple[str, str, str]]:
        """Yield the kernel, dtype and device name of everything ever tuned, sorted."""

    @abstractmethod
    def devices(self) -> list[str]:
        """Return the names of all devices ever tuned on, sorted."""

    @abstractmethod
    def scopes(self, kernel: str | None = None, device: str | None = None) -> Iterator[Scope]:
        """Yield all scopes, or those of a kernel or a device name, in the order they were first seen."""

    @abstractmethod
    def scope(self, key: str) -> Scope | None:
        """Return the scope with that key, or None."""

    @abstractmethod
    def kernels(self) -> list[str]:
        """Return the names of all kernels ever tuned, sorted."""

    @abstractmethod
    def results(self, wanted: Wanted, *, before: Written | None = None, most: int = 50) -> list[tuple[Written, Result]]:
        """Return a page of the results of all scopes, with or without a winner, those written to last first.

        Pass the last place of a page as `before` to get the next page.
        """

    @abstractmethod
    def trial_page(
        self, wanted: Wanted, *, status: Status | None = None, after: Place = START, most: int = 100
    ) -> tuple[list[Listed], Place | None]:
        """Return a page of trials, history included, in the order of their scopes, and the place where the next page
        starts (None after the last).

        Pages before the last may be short or even empty, since a bounded number of scopes is read for each.
        """

    @abstractmethod
    def history(self, question: Question) -> list[tuple[Scope, Trial]]:
        """Return every verified trial that was the fastest of its scope when it was recorded, in that order."""

    @abstractmethod
    def close(self) -> None:
        """Release files and connections; the store is unusable afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
