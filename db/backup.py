"""Consistent, verified and atomic copies of a database that is in use."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

from tilewise.db.sql import sqlite
from tilewise.db.sql.database import Database, connect
from tilewise.db.sql.faults import fault
from tilewise.errors import StoreError, UsageError

__all__ = ["Backup", "back_up"]


@dataclass(frozen=True, slots=True)
class Backup:
    database: str
    file: str
    bytes: int


def back_up(url: str, file: Path) -> Backup:
    """Copy the SQLite database at `url` to `file`, replacing an older copy there.

    The copy is a snapshot of one moment; others may read and write meanwhile. It has no log beside it and opens like
    any other database. Raises `UsageError` if the database is PostgreSQL or `file` is a database in use, `StoreError`
    if the database cannot be read or the copy cannot be written. After an error the old `file` is still there.
    """
    database = connect(url, create=False, read_only=True)
    try:
        if database.engine.dialect.name != "sqlite":
            raise UsageError(f"a PostgreSQL database is backed up with its own tool; run: {_dump_command(url, file)}")
        _check_place(database, file)
        _copy_to(database, file)
    finally:
        database.close()
    return Backup(database.name, str(file), file.stat().st_size)


def _dump_command(url: str, file: Path) -> str:
    source = make_url(url)._replace(drivername="postgresql", password=None).render_as_string()
    return f"pg_dump --format=custom --file={shlex.quote(str(file))} {shlex.quote(source)}"


def _check_place(database: Database, file: Path) -> None:
    sqlite.make_place(file, create=True)
    log = file.with_name(file.name + "-wal")
    if log.exists() or (file.exists() and os.path.exists(database.name) and file.samefile(database.name)):
        raise UsageError(f"{file} is a database in use; choose another file for the copy")


def _copy_to(database: Database, file: Path) -> None:
    try:
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".partial", dir=file.parent)
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}; choose another path") from error
    os.close(handle)
    part = Path(name)
    try:
        _fill(database, part, file)
        if database.is_file:
            shutil.copymode(database.name, part)
        os.replace(part, file)
        _sync(file.parent)
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}; choose another path") from error
    finally:
        part.unlink(missing_ok=True)


def _fill(database: Database, part: Path, file: Path) -> None:
    """Copy in one step, which is one read transaction, with SQLite's backup API. Then check the whole copy."""
    with database.translated(), database.engine.connect() as connection:
        source = connection.connection.driver_connection
        assert isinstance(source, sqlite3.Connection)
        source.execute("SELECT 1 FROM sqlite_master").fetchone()  # a fault in the source is then reported as such
        try:
            with closing(sqlite3.connect(part, isolation_level=None)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")  # a single file, with no log beside it
                [verdict] = copy.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.Error as error:
            raise fault(str(file), error) from error
    if verdict != "ok":
        raise StoreError(f"{database.name} is damaged ({' '.join(verdict.split())}); run tilewise db check")
    _sync(part)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
