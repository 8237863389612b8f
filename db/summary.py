"""A database's schema version and size, read without changing the database or any file beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from tilewise.db.sql import sqlite
from tilewise.db.sql.database import connect_untouched, shown
from tilewise.db.sql.models import scopes
from tilewise.db.sql.schema import HEAD, revision

__all__ = ["Summary", "summarize"]

_CONNECT_SECONDS = 5.0

_PROBLEMS = select(func.count()).select_from(
    select(scopes.c.kernel, scopes.c.dims, scopes.c.dtype).distinct().subquery()
)


@dataclass(frozen=True, slots=True)
class Summary:
    """A database that opens. `revision` is its schema's version, None if it is empty; `head` is this program's.

    `read_only` is set for a file that this process cannot write.
    """

    url: str
    revision: str | None
    head: str
    problems: int
    read_only: bool


def summarize(url: str) -> Summary:
    """Summarize the database at `url`. Raises `StoreError` if none can be read there within some seconds."""
    database = connect_untouched(url, _CONNECT_SECONDS)
    try:
        found = revision(database)
        problems = database.fetch_value(_PROBLEMS) if found is not None else 0
        read_only = database.is_file and not sqlite.is_writable(Path(database.name))
        return Summary(shown(url), found, HEAD, problems, read_only)
    finally:
        database.close()
