"""Changes made by any process, for caches to follow.

Every transaction that can change a look-up's answer increments `revision.number` and writes the new number to the
scopes that it touched, before it commits. So the scopes above a number are those written since.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, update

from tilewise.db.sql import models, queries, stored_answers
from tilewise.db.sql.database import Database

__all__ = ["Changes", "touch"]

_LIMIT = 1000
"""Limit of changed questions to list. From there on, everything counts as changed."""

_COUNT = update(models.revision).values(number=models.revision.c.number + 1).returning(models.revision.c.number)
_STAMP = update(models.scopes).where(models.scopes.c.id == bindparam("touched")).values(revision=bindparam("now"))


def touch(connection: Connection, scope_ids: Sequence[int | None]) -> None:
    """Count this transaction, which wrote to these scopes, and encode their answers.

    Call it last: other writers then wait for the commit. Most of the work is done before they have to.
    """
    touched = [scope_id for scope_id in scope_ids if scope_id is not None]
    stored_answers.store(connection, touched)
    number = connection.execute(_COUNT).scalar_one()
    if touched:
        connection.execute(_STAMP, [{"touched": scope_id, "now": number} for scope_id in touched])
        stored_answers.number(connection, touched, number)


class Changes:
    """The changes of a database from now on. Calls may come from any thread, one at a time.

    `is_quick` means that `poll` costs microseconds if nothing was written, since SQLite counts the commits of others
    for each connection.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_quick = database.is_file and database.writable
        self._lock = threading.Lock()
        self._connection: Any = database.engine.raw_connection() if self.is_quick else None
        self._version: int | None = None
        self._seen = -1
        self.poll()

    def poll(self) -> Sequence[str] | None:
        """Return the keys of the questions written to since the last call, or None if any may have been.

        Raises `StoreError`; the next call then returns what this one could not.
        """
        with self._lock:
            if self._connection is None:
                return self._changed()
            with self._database.translated():
                [version] = self._connection.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return ()
            changed = self._changed()
            self._version = version
            return changed

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _changed(self) -> Sequence[str] | None:
        number = self._database.fetch_value(queries.REVISION)
        changed: Sequence[str] | None = ()
        if number < self._seen or self._seen < 0:  # a lower number: an older database replaced this one
            changed = None
        elif number > self._seen:
            rows = self._database.fetch(queries.CHANGED, seen=self._seen, most=_LIMIT)
            changed = None if len(rows) == _LIMIT else [key for (key,) in rows]
        self._seen = number
        return changed
