"""Compiled artefacts by the hash of all that they depend on, and the claims of those who compile them.

The key of the operator's, which is never in the database, seals each artefact: whoever can write there can add one, but
none that a host accepts. The table is bounded: the artefacts that were written first go first. A claim is one process's
right to compile; it raises a count as a sign of life, and whoever sees no sign for long enough takes the claim over.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from tilewise.db.sql import models
from tilewise.db.sql.database import Database
from tilewise.errors import UsageError

__all__ = ["LARGEST", "Artefacts", "Claim", "Totals"]

LARGEST = 32 << 20
"""Most bytes of an artefact; one takes some 10 to 100 KB."""

_MOST_BYTES = 1 << 30
_PURPOSE = b"tilewise artefact 1:"
"""What the key signs begins so: a signature made for anything else is none of an artefact."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A process that compiles, and the last of its signs of life."""

    owner: str
    beats: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The number of artefacts, and their bytes."""

    count: int
    bytes: int


_A, _C = models.artefacts.c, models.compilations.c
_GET = select(_A.content, _A.seal).where(_A.key == bindparam("key"))
_CLAIM = select(_C.owner, _C.beats).where(_C.key == bindparam("key"))
_TOTALS = select(func.count(), func.coalesce(func.sum(_A.bytes), 0)).select_from(models.artefacts)


class Artefacts:
    """The artefacts in a database that `secret` seals, up to `most` bytes. All methods raise `StoreError`."""

    def __init__(self, database: Database, secret: bytes, most: int = _MOST_BYTES) -> None:
        self._database, self._secret, self._most = database, secret, most

    def get(self, key: str) -> bytes | None:
        """Return the artefact of a key; None if there is none, or if it is not sealed with this key as it is."""
        for content, seal in self._database.fetch(_GET, key=key):
            if hmac.compare_digest(self._seal(key, found := bytes(content)), str(seal)):
                return found
        return None

    def put(self, key: str, content: bytes, owner: str) -> None:
        """Add an artefact in place of one of its key, end the owner's claim, and drop the oldest beyond the limit.

        Raises `UsageError` if it is too large.
        """
        if len(content) > LARGEST:
            raise UsageError(f"the artefact has {len(content)} bytes; at most {LARGEST} are kept")
        values = {"key": key, "content": content, "seal": self._seal(key, content), "bytes": len(content)}
        newer = select(_A.id, func.sum(_A.bytes).over(order_by=_A.id.desc()).label("total")).subquery()
        oldest = select(func.max(newer.c.id)).where(newer.c.total > self._most).scalar_subquery()
        with self._database.write() as connection:
            connection.execute(delete(models.artefacts).where(_A.key == key))
            connection.execute(insert(models.artefacts).values(values))
            connection.execute(delete(models.compilations).where(_C.key == key, _C.owner == owner))
            if connection.execute(_TOTALS).one()[1] > self._most:
                connection.execute(delete(models.artefacts).where(_A.id <= oldest))

    def claim(self, key: str, owner: str) -> bool:
        """Claim the compilation of a key. Returns False if another process has claimed it."""
        values = {"key": key, "owner": owner, "beats": 0}
        with self._database.write() as connection:
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            added = dialect.insert(models.compilations).values(values).on_conflict_do_nothing().returning(_C.key)
            return connection.execute(added).first() is not None

    def claimed(self, key: str) -> Claim | None:
        rows = self._database.fetch(_CLAIM, key=key)
        return Claim(*rows[0]) if rows else None

    def beat(self, key: str, owner: str) -> bool:
        """Record a sign of life. Returns False if another process has taken the claim over."""
        with self._database.write() as connection:
            change = update(models.compilations).where(_C.key == key, _C.owner == owner)
            return bool(connection.execute(change.values(beats=_C.beats + 1)).rowcount)

    def take_over(self, key: str, lost: Claim, owner: str) -> bool:
        """Take a claim over, unless its owner has given a sign of life since, or another process was faster."""
        with self._database.write() as connection:
            same = (_C.key == key, _C.owner == lost.owner, _C.beats == lost.beats)
            change = update(models.compilations).where(*same).values(owner=owner, beats=0)
            return bool(connection.execute(change).rowcount)

    def release(self, key: str, owner: str) -> None:
        """End a claim without an artefact."""
        with self._database.write() as connection:
            connection.execute(delete(models.compilations).where(_C.key == key, _C.owner == owner))

    def totals(self) -> Totals:
        ((count, size),) = self._database.fetch(_TOTALS)
        return Totals(int(count), int(size))  # PostgreSQL adds up in decimals

    def _seal(self, key: str, content: bytes) -> str:
        return hmac.new(self._secret, _PURPOSE + key.encode() + b":" + content, hashlib.sha256).hexdigest()
