"""The store's contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tilewise.db.records import Config, Dims, Question, Result, Scope, Status, Suggestion, Trial

__all__ = ["START", "Change", "Listed", "MergeReport", "Place", "Store", "Wanted"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a listing is narrowed to; None does not narrow. `dims` gives the sizes of some dimensions."""

    kernel: str | None = None
    dtype: str | None = None
    device: str | None = None
    dims: Dims = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A scope whose winner is another config, or another time of it, than before; None where there was or is none."""

    scope: Scope
    before: Trial | None
    after: Trial | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a listing of trials stands: after that trial of that scope."""

    scope: int = 0
    trial: int = 0


START = Place()


@dataclass(frozen=True, slots=True)
class Listed:
    """A trial in a listing, current or history."""

    place: Place
    scope: Scope
    trial: Trial
    current: bool


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge did: scopes offered; trials that were new, replaced a current one, or changed nothing; winners."""

    scopes: int
    added: int
    updated: int
    unchanged: int
    changes: tuple[Change, ...] = field(default=(), compare=False)


class Store(ABC):
    """Keeps every trial; answers which config is best.

    Each call is one transaction: when it returns, its effect survives a kill of the process; when it raises
    `StoreError`, it had none. Several processes may use one store at once; a writer waits for another.

    A trial is *current* until a later one of the same scope and config is recorded, or its scope is retired. Only
    current trials count in results. The winner is the current trial with the smallest time among those that are
    `correct` and verified; one with a `time_to_beat_us`, declared the winner by a comparison, counts with that
    time and goes first at it. Equal times are settled by the earlier ordinal (none counts as the last), then the
    earlier record. A trial that cannot have happened (correct without a time, verified but failed, a time that is not
    positive) is refused with `StoreError`.
    """

    @abstractmethod
    def record(self, scope: Scope, trials: Sequence[Trial]) -> None:
        """Keep these trials, all or none, superseding current ones of the same configs."""

    @abstractmethod
    def merge(self, evidence: Sequence[tuple[Scope, Sequence[Trial]]]) -> MergeReport:
        """Keep, all or none, those of somebody else's trials that say more than the current ones of the same configs.

        A wrong output says most, then a verified one, then another failure, then a time alone; of two that say the
        same the one of more samples counts, then the later `created`. So merging the same evidence twice changes
        nothing, and the order of merges does not matter.
        """

    @abstractmethod
    def suggest(self, suggestions: Sequence[Suggestion]) -> int:
        """Keep these recommendations, all or none; returns how many were not known."""

    @abstractmethod
    def suggestions(self, kernel: str) -> list[Suggestion]:
        """What was recommended for a kernel, in the order it was first heard."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Store]:
        """The store as it is now, for reading: what others write while the block runs is not seen in it.

        A store in memory, which nobody else can write, is handed out as it is.
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
        """Mark the current trial of `config` as verified, or as failed with this status and the reason.

        Raises `NotFound` where the scope has no current trial of that config. Agreeing with a failed trial is refused.
        """

    @abstractmethod
    def mark(self) -> int:
        """This point in the order in which trials are recorded: a clock, which may be set back, cannot tell it."""

    @abstractmethod
    def revision(self) -> int:
        """A number that rises with every write to trials."""

    @abstractmethod
    def written(self, since: int) -> list[Scope]:
        """The scopes whose trials were written to after that revision, each once."""

    @abstractmethod
    def retire(self, scope: Scope, mark: int) -> int:
        """Make the scope's trials recorded before `mark` history: kept, but no longer current. Returns how many."""

    @abstractmethod
    def trials(self, scope: Scope, *, since: int = 0) -> list[Trial]:
        """The scope's current trials, or those recorded since a mark, in the order they were recorded."""

    @abstractmethod
    def result(self, scope: Scope) -> Result:
        """The scope's result; its winner is None where nothing is verified, its counts zero where nothing was tried."""

    @abstractmethod
    def lookup(self, question: Question, *, source_hash: str | None = None) -> Result | None:
        """The best known answer for exactly this problem and device name, or None.

        Among scopes that have a winner, and the given source hash if one is given: measured before modelled, then the
        one whose winner was found last.
        """

    @abstractmethod
    def answers(self, question: Question, *, source_hash: str | None = None) -> list[Result]:
        """All that could answer exactly this question: those among which `lookup` takes the first, in its order."""

    @abstractmethod
    def shape_pages(
        self, kernel: str, dtype: str, device: str, *, last: int = 0
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Pages of the scopes' dimension sizes: by the source's hash a list of them in canonical JSON, in any order.
        Each page with its last scope's number; of the scopes with a number above `last`.

        For an index of shapes that is brought up to date now and then. The scopes need not have a winner (yet).
        """

    @abstractmethod
    def draw(self, kernel: str, dtype: str, device: str, source_hash: str | None, *, most: int) -> list[Scope]:
        """The `most` scopes with the smallest keys of each source, clock, toolchain and core count: as good as drawn at
        random, and hardly changed by what is stored later. `source_hash` None is any source."""

    @abstractmethod
    def families(self) -> Iterator[tuple[str, str, str]]:
        """Kernel, dtype and device name of whatever was ever tuned, sorted."""

    @abstractmethod
    def devices(self) -> list[str]:
        """Names of the devices that something was ever tuned on, sorted."""

    @abstractmethod
    def scopes(self, kernel: str | None = None, device: str | None = None) -> Iterator[Scope]:
        """All scopes, or those of a kernel or a device name, in the order they were first seen."""

    @abstractmethod
    def scope(self, key: str) -> Scope | None:
        """The scope of that key, or None."""

    @abstractmethod
    def kernels(self) -> list[str]:
        """Names of the kernels that anything was ever tuned of, sorted."""

    @abstractmethod
    def results(self, wanted: Wanted, *, before: int | None = None, most: int = 50) -> list[tuple[int, Result]]:
        """Results that have a winner, those of the scopes seen last first, each with a number that falls: the last one
        of a page given as `before` brings the next."""

    @abstractmethod
    def trial_page(
        self, wanted: Wanted, *, status: Status | None = None, after: Place = START, most: int = 100
    ) -> tuple[list[Listed], Place | None]:
        """Trials, history too, in the order of their scopes, and where the next page starts; None after the last.

        A page may be short, or even empty, before the last one: a bounded number of scopes is looked at for it.
        """

    @abstractmethod
    def history(self, question: Question) -> list[tuple[Scope, Trial]]:
        """Every verified trial that was the fastest of its scope when it was recorded, in that order."""

    @abstractmethod
    def close(self) -> None:
        """Release files and connections; the store is unusable afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
