"""The store of a process that runs a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from tilewise.db.records import Scope, Trial
from tilewise.db.sql.sql_store import SqlStore

__all__ = ["LeasedStore", "Repeated"]


class Repeated(Exception):
    """A write that was stored before. Nothing was written."""


class LeasedStore(SqlStore):
    """A store that checks in the transaction of each write that the job is still its process's own.

    `check` gets that transaction, and the number of configs in it that had no trial in their scope so far. What it
    raises undoes the write. The database stays `store`'s to close.
    """

    def __init__(self, store: SqlStore, check: Callable[[Connection, int], None]) -> None:
        super().__init__(store.database.fenced(lambda connection: check(connection, self._new)))
        self._known: dict[str, set[str]] = {}
        self._new = 0

    def record(self, scope: Scope, trials: Sequence[Trial]) -> None:
        if scope.key not in self._known:
            self._known[scope.key] = {trial.config_key for trial in self.trials(scope)}
        new = {trial.config_key for trial in trials} - self._known[scope.key]
        self._new = len(new)
        try:
            super().record(scope, trials)
        finally:
            self._new = 0
        self._known[scope.key] |= new
