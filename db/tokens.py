"""Bearer tokens. A token is shown once, when it is created; only its hash is stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from sqlalchemy import bindparam, insert, select, update

from tilewise.db.sql import models
from tilewise.db.sql.database import Database
from tilewise.errors import NotFound, UsageError

__all__ = ["Right", "Token", "Tokens"]

_FORM = re.compile(r"tw_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})", re.ASCII)
_NO_SECRET = hashlib.sha256(b"").hexdigest()
_LONGEST_NAME = 100


class Right(StrEnum):
    """The right of a token. `submit` includes `read`, `admin` both, and `work` only `read`.

    - `read`: look-ups and listings, on a server that requires a token for them.
    - `submit`: submitting and cancelling jobs.
    - `admin`: importing results.
    - `work`: running jobs as a worker without a database, and storing their trials.
    """

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"
    WORK = "work"

    def includes(self, other: Right) -> bool:
        return other in _INCLUDED[self]


_INCLUDED = {
    Right.READ: {Right.READ},
    Right.SUBMIT: {Right.READ, Right.SUBMIT},
    Right.ADMIN: {Right.READ, Right.SUBMIT, Right.ADMIN},
    Right.WORK: {Right.READ, Right.WORK},
}


@dataclass(frozen=True, slots=True)
class Token:
    """A token's record, without its secret."""

    id: int
    name: str
    right: Right
    created: datetime
    revoked: datetime | None


_T = models.tokens.c
_FIND = select(_T.hash, _T.scope, _T.revoked).where(_T.id == bindparam("id"))
_LIST = select(_T.id, _T.name, _T.scope, _T.created, _T.revoked).order_by(_T.id)


class Tokens:
    """The tokens in a database. All methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, right: Right) -> str:
        """Create a token and return its text, which cannot be recovered later."""
        if not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise UsageError(f"a token's name must have 1 to {_LONGEST_NAME} printable characters")
        secret = secrets.token_urlsafe(32)
        values = {"name": name, "hash": _hash(secret), "scope": right.value, "created": datetime.now(UTC)}
        with self._database.write() as connection:
            token_id = connection.execute(insert(models.tokens).values(values).returning(_T.id)).scalar_one()
        return f"tw_{token_id}_{secret}"

    def list(self) -> list[Token]:
        """Return all tokens ever created, oldest first."""
        rows = self._database.fetch(_LIST)
        return [
            Token(token_id, name, Right(right), created, revoked) for token_id, name, right, created, revoked in rows
        ]

    def revoke(self, number: int) -> None:
        """Refuse the token from now on. Revoking it again does nothing. Raises `NotFound`."""
        change = update(models.tokens).where(_T.id == number)
        with self._database.write() as connection:
            if connection.execute(change.where(_T.revoked.is_(None)).values(revoked=datetime.now(UTC))).rowcount:
                return
            if connection.execute(select(_T.id).where(_T.id == number)).scalar() is None:
                raise NotFound(f"token {number} does not exist; tilewise token list shows all tokens")

    def check(self, text: str) -> tuple[int, Right] | None:
        """Return the id and right of a token that is known and not revoked, else None; both take equally long."""
        found = _FORM.fullmatch(text)
        rows = self._database.fetch(_FIND, id=int(found[1])) if found else []
        stored, right, revoked = rows[0] if rows else (_NO_SECRET, "", None)
        agrees = hmac.compare_digest(_hash(found[2] if found else ""), stored)
        if not agrees or revoked is not None or not found or not rows:
            return None
        return int(found[1]), Right(right)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
