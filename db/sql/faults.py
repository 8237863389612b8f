"""Database errors as one-line messages for a person."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from tilewise.errors import NoSpace, ReadOnly, StoreError

__all__ = ["fault", "read_only_fault"]

_READ_ONLY = "{name} is read-only; give write permission on the file and its folder, or use another database"
_LOCKED = "{name} stayed locked by another process for too long; wait until it is done, then try again"
_CROSSED = "{name}: another process wrote to the same problems in another order; nothing was written: try again"
_FULL = "no space left for {name}; nothing was written: free some space, then try again"

_BY_SQLITE_CODE = {
    sqlite3.SQLITE_NOTADB: "{name} is not a database; expected an SQLite file that tilewise made",
    sqlite3.SQLITE_CORRUPT: "{name} is damaged ({detail}); restore a backup or start a new one",
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_CANTOPEN: "cannot open {name} ({detail}); check the path and its permissions",
    sqlite3.SQLITE_IOERR: "cannot read or write {name} ({detail}); check the disk and the space left on it",
}
"""By primary result code (https://sqlite.org/rescode.html)."""

_BY_SQLSTATE = {"25006": _READ_ONLY, "42501": _READ_ONLY, "53100": _FULL, "55P03": _LOCKED, "40P01": _CROSSED}
"""By PostgreSQL's error code (appendix A of its manual)."""


_KINDS = {_READ_ONLY: ReadOnly, _FULL: NoSpace}
"""Errors that are not cured by trying again."""


def read_only_fault(name: str) -> StoreError:
    return ReadOnly(_READ_ONLY.format(name=name))


def fault(name: str, error: Exception) -> StoreError:
    """Return an error of SQLAlchemy or a driver as a `StoreError` about the database `name`."""
    origin = getattr(error, "orig", None) or error
    detail = (str(origin).splitlines() or [type(origin).__name__])[0]
    template = _template(error, origin)
    return _KINDS.get(template, StoreError)(template.format(name=name, detail=detail))


def _template(error: Exception, origin: object) -> str:
    if isinstance(error, PoolTimeout):
        return _LOCKED
    code = getattr(origin, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _BY_SQLITE_CODE:  # the low byte of an extended code is the primary one
        return _BY_SQLITE_CODE[code & 0xFF]
    state = getattr(origin, "sqlstate", None)
    if state in _BY_SQLSTATE:
        return _BY_SQLSTATE[state]
    if code is None and state is None and isinstance(error, OperationalError | InterfaceError):
        return "cannot reach {name} ({detail}); check that the server is running and accepts this user"
    return "{name} refused: {detail}"
