"""The landscapes that were read last, so that a page, its script and its downloads read the database once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

from tilewise.api.pages.problem.importance import Importance, importances
from tilewise.api.pages.problem.landscape import Landscape
from tilewise.db.records import Result, Scope
from tilewise.db.sql.sql_store import SqlStore

__all__ = ["Landscapes", "Stored"]

_MOST_TRIALS = 300_000
"""Trials kept in memory, which bounds the size: parameters and outcomes of a trial take some ten numbers."""


@dataclass(frozen=True)
class Stored:
    """A problem's result and all its trials, as of one write. `winner` and `default` are numbers of trials."""

    result: Result
    landscape: Landscape

    @cached_property
    def winner(self) -> int | None:
        return self.landscape.find(self.result.winner.config) if self.result.winner else None

    @cached_property
    def default(self) -> int | None:
        return self.landscape.find(self.result.default.config) if self.result.default else None

    @cached_property
    def reference(self) -> int | None:
        """The winner or, of a problem without one, the fastest trial."""
        return self.landscape.fastest() if self.winner is None else self.winner

    @cached_property
    def importances(self) -> list[Importance]:
        return importances(self.landscape, self.reference)

    @cached_property
    def encoded(self) -> bytes:
        return self.landscape.encoded(self.winner, self.default)


class Landscapes:
    """A memory of landscapes by scope and the revision at which they were read. Calls may come from any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[int | None, Stored]] = OrderedDict()
        self._trials = 0
        self._lock = threading.Lock()

    def of(self, store: SqlStore, scope: Scope) -> Stored:
        key, revision = (store.name, scope.key), store.written_at(scope.key)
        with self._lock:
            known = self._kept.get(key)
            if known is not None and known[0] == revision:
                self._kept.move_to_end(key)
                return known[1]
        stored = Stored(store.result(scope), Landscape(store.figures(scope.key)))
        with self._lock:
            self._drop(key)
            self._kept[key] = revision, stored
            self._trials += len(stored.landscape)
            while self._trials > _MOST_TRIALS and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))
        return stored

    def _drop(self, key: tuple[str, str]) -> None:
        gone = self._kept.pop(key, None)
        self._trials -= len(gone[1].landscape) if gone else 0
