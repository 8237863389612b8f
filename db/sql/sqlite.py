"""SQLite specifics: how its files are opened, locked and made durable.

- Write-ahead log: readers and the writer never wait for each other.
- `synchronous=FULL`: one sync of the log per commit, so that a finished call survives even a power failure. A sync
  costs 0.2 to 10 ms, less than the trial that it stores. (`NORMAL` would already survive a kill.)
- `BEGIN IMMEDIATE` for every write: a transaction that starts as a reader cannot always become a writer, whatever
  its busy timeout.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, QueuePool

from tilewise.errors import StoreError

__all__ = [
    "BUSY_SECONDS",
    "busy_seconds",
    "create_sqlite_engine",
    "create_untouched_engine",
    "database_path",
    "is_writable",
    "keep_write_ahead_log",
    "make_place",
]

BUSY_SECONDS = 30
_LEAST_BYTES = 512  # one page of the smallest size
_WAL_POLL_SECONDS = 0.01
_CACHE_KIB = 8_000
"""Cache per connection, for the inner pages of a million problems' indexes. The connection used last is used next, so
few of them fill theirs."""


def database_path(url: URL) -> Path | None:
    """Return the file that a URL names, or None for an in-memory database and for SQLite's own `file:` URIs."""
    name = url.database or ":memory:"
    return None if name == ":memory:" or name.startswith("file:") else Path(name)


def make_place(path: Path, *, create: bool) -> None:
    """Check that `path` is or can become a database file, creating its folder. Raises `StoreError` if it cannot."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder; expected a database file")
    if path.exists():
        _check_size(path)
        return
    if not create:
        raise StoreError(f"no database at {path}; check the path, or tune or import something to create one")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create the folder of {path}: {error.strerror}; choose another path") from error


def _check_size(path: Path) -> None:
    """Refuse a file of a few bytes, which SQLite would take for an empty database and overwrite.

    SQLite checks larger files itself. Nothing here may open the file: closing it again would drop the locks that this
    process holds on it through SQLite (POSIX drops all of a process's locks on a file), and the next process to close
    the database would delete the log that this one still uses.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    if 0 < size < _LEAST_BYTES:
        raise StoreError(f"{path} is not a database; expected an SQLite file that tilewise made")


def is_writable(path: Path) -> bool:
    """Return whether the file and its folder, which holds the log, are writable. They are not on a read-only mount."""
    return (not path.exists() or os.access(path, os.W_OK)) and os.access(path.parent, os.W_OK)


def busy_seconds(url: URL) -> float:
    """Return how long to wait for another writer: the URL's `timeout`. Raises `ValueError` if it is not a number."""
    return float(str(url.query.get("timeout", BUSY_SECONDS)))


def create_sqlite_engine(url: URL, path: Path | None, *, read_only: bool) -> Engine:
    """Return an engine whose connections begin a transaction if they have the execution option `writing`."""
    options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "timeout": busy_seconds(url)}
    if path is not None and read_only:
        engine = _read_only_engine(path, options)
    elif path is not None:
        engine = create_engine(url, connect_args=options, pool_use_lifo=True)
    else:  # an in-memory database is one connection, which threads use in turn
        engine = create_engine(url, connect_args=options, poolclass=QueuePool, pool_size=1, max_overflow=0)
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def keep_write_ahead_log(engine: Engine) -> None:
    """Switch the file to a write-ahead log for good, unless it has one.

    SQLite does not apply the busy timeout to this switch, so two processes that create the same file wait here.
    """
    connection = engine.raw_connection()
    try:
        give_up = time.monotonic() + busy_seconds(engine.url)
        while not _switched(connection.cursor(), last=time.monotonic() > give_up):
            time.sleep(_WAL_POLL_SECONDS)
    finally:
        connection.close()


def _switched(cursor: Any, *, last: bool) -> bool:
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.fetchall()
    except sqlite3.OperationalError as error:
        if last or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


def _set_up(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")


def _begin(connection: Connection) -> None:
    """Take the write lock at once for a writer. A reader's single statement is a transaction by itself."""
    if connection.get_execution_options().get("writing", False):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _read_only_engine(path: Path, options: dict[str, Any]) -> Engine:
    """Return an engine for a file that this process must not or cannot write.

    If the log's files neither exist nor can be created (a read-only mount), SQLite opens the database only as
    `immutable`, which is right as long as nobody writes. Another host might, so such a connection serves one call only,
    and the next call checks again for a log. With a log present, `immutable` would be wrong.
    """

    def connect(flags: str = "mode=ro") -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?{flags}", uri=True, **options
        )
        return connection

    def connect_once() -> sqlite3.Connection:
        connection = connect()
        if _needs_immutable(connection, path):
            connection.close()
            return connect("immutable=1")
        return connection

    probe = connect()
    try:
        immutable = _needs_immutable(probe, path)
    finally:
        probe.close()
    if immutable:
        return create_engine("sqlite://", creator=connect_once, poolclass=NullPool)
    return create_engine("sqlite://", creator=connect, poolclass=QueuePool)


def create_untouched_engine(path: Path) -> Engine:
    """Return an engine for a few SELECTs that neither change a file nor make one, not even the log's.

    If another process has the database open, its log and index are read as they are. Otherwise the file is opened as
    `immutable`, which is right as long as nobody starts to write meanwhile. Raises `StoreError` if the log has to be
    applied first: that would write.
    """

    def connect() -> sqlite3.Connection:
        flags = "mode=ro&readonly_shm=1" if index.exists() else "immutable=1"
        connection: sqlite3.Connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?{flags}", uri=True, isolation_level=None
        )
        return connection

    log, index = path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")
    if not index.exists() and log.exists() and log.stat().st_size > 0:
        raise StoreError(f"{path} was left unfinished by a killed writer; run tilewise db check, which reads its log")
    return create_engine("sqlite://", creator=connect, poolclass=NullPool)


def _needs_immutable(connection: sqlite3.Connection, path: Path) -> bool:
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size > 0:
            raise StoreError(
                f"{path} was left unfinished by a killed writer; open it once where it is writable"
            ) from error
        return True
    return False
