"""Encoded answers to exact look-ups, so that one read of a row answers.

An answer is current only if it bears the number of the last write to its scope's trials and the encoder's format.
Every transaction that may change an answer numbers its scopes, whichever version of tilewise makes it, so an answer
that such a write left behind is not found, and the trials are read instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, delete, insert, select, update

from tilewise.db.sql import queries
from tilewise.db.sql.database import Database
from tilewise.db.sql.encoded_result import FORMAT, encode_row
from tilewise.db.sql.models import answers, scopes
from tilewise.db.sql.rows import SCOPE_COLUMNS

__all__ = ["complete", "number", "stale", "store"]

_SCOPES_AT_ONCE = 500
"""Scopes whose answers are encoded by one query, and that `complete` locks at once: for 0.1 s."""

_WINNERS_CONFIG = len(SCOPE_COLUMNS)
"""Position of the winner's config in a row of `CURRENT_ANSWERS`."""

_UNNUMBERED = -1
"""The revision of an answer whose transaction has no number yet. No scope has it, so it is never current."""

_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_ENCODED = queries.encoded_of(_IDS)
_DROP = delete(answers).where(answers.c.scope_id.in_(_IDS))
_NUMBER = update(answers).where(answers.c.scope_id == bindparam("touched")).values(revision=bindparam("now"))
_NUMBER_AS_SCOPE = (
    update(answers)
    .where(answers.c.scope_id.in_(_IDS))
    .values(revision=select(scopes.c.revision).where(scopes.c.id == answers.c.scope_id).scalar_subquery())
)
_LOCK = select(scopes.c.id).where(scopes.c.id.in_(_IDS)).with_for_update()


def store(connection: Connection, scope_ids: Sequence[int]) -> int:
    """Encode the answers of scopes whose trials this transaction has written, and which it has locked.

    They are current after `number`. A scope without a winner has none. Returns the number of answers.
    """
    stored = 0
    for ids in _groups(scope_ids):
        found = connection.execute(_ENCODED, {"ids": ids}).all()
        connection.execute(_DROP, {"ids": ids})
        new = {"revision": _UNNUMBERED, "format": FORMAT}
        rows = [{"scope_id": row[-1], "body": encode_row(row[:-1]).decode(), **new} for row in found]
        if rows:
            connection.execute(insert(answers), rows)
        stored += len(rows)
    return stored


def number(connection: Connection, scope_ids: Sequence[int], revision: int) -> None:
    """Make the scopes' answers current."""
    connection.execute(_NUMBER, [{"touched": scope_id, "now": revision} for scope_id in scope_ids])


def complete(database: Database) -> int:
    """Encode all answers that are not current, such as those of an earlier version, and return how many.

    Others may read and write meanwhile. Raises `StoreError`.
    """
    last = done = 0
    while rows := database.fetch(queries.ANSWERED, last=last, format=FORMAT, most=_SCOPES_AT_ONCE):
        last = rows[-1][0]
        if ids := [scope_id for scope_id, answered in rows if answered is None]:
            with database.write() as connection:
                connection.execute(_LOCK, {"ids": ids})
                done += store(connection, ids)
                connection.execute(_NUMBER_AS_SCOPE, {"ids": ids})
    return done


def stale(database: Database) -> Iterator[str]:
    """Yield a line for each current answer that is not what its scope's trials say."""
    last = 0
    while rows := database.fetch(queries.CURRENT_ANSWERS, last=last, format=FORMAT, most=_SCOPES_AT_ONCE):
        for *row, body, last in rows:
            if row[_WINNERS_CONFIG] is None or encode_row(row).decode() != body:
                yield f"answers {last}: it does not match the trials of its scope"


def _groups(scope_ids: Sequence[int]) -> Iterator[list[int]]:
    left = iter(scope_ids)
    while group := list(islice(left, _SCOPES_AT_ONCE)):
        yield group
