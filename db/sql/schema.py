"""The schema's version: checked with one query on every open, and upgraded if it is behind."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from tilewise.db.sql import sqlite
from tilewise.db.sql.database import Database
from tilewise.errors import StoreError

__all__ = ["HEAD", "bring_up", "revision", "steps"]

HEAD = "0013"
"""The revision that this program needs. Revisions are numbered, so that a newer one can be recognized."""

_MIGRATION_LOCK = 7_450_193_811
"""The PostgreSQL advisory lock held while migrating; an arbitrary constant."""


def revision(database: Database) -> str | None:
    """Return a database's revision, None if it is empty. Raises `StoreError` if it is newer or not tilewise's."""
    with database.translated(), database.engine.connect() as connection:
        return _version(connection, database.name)


def steps(after: str | None) -> list[str]:
    """Return the revisions after one, up to `HEAD`, one line each."""
    from tilewise.db.sql import migrations

    return migrations.steps(after, HEAD)


def bring_up(database: Database) -> str | None:
    """Upgrade the database to `HEAD`, and return the revision it was at (None for an empty one).

    Raises `StoreError` if it is newer, not tilewise's, or behind and read-only.
    """
    version = revision(database)
    if version == HEAD and not database.writable:
        return version
    if version != HEAD and not database.writable:
        state = f"has schema {version}, older than {HEAD}," if version else "is empty"
        raise StoreError(f"{database.name} {state} and is opened read-only; open it for writing once")
    if database.is_file:
        with database.translated():
            sqlite.keep_write_ahead_log(database.engine)
    if version != HEAD:
        _migrate(database)
    return version


def _migrate(database: Database) -> None:
    from tilewise.db.sql import migrations  # Alembic costs 0.2 s to import and is needed once in a database's life

    with database.write() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
        if _version(connection, database.name) != HEAD:  # no other process migrated while this one waited for the lock
            migrations.upgrade(connection, HEAD)


def _version(connection: Connection, name: str) -> str | None:
    """Return the database's revision, at most `HEAD`, or None if it is empty."""
    try:
        with connection.begin_nested() if connection.in_transaction() else connection.begin():
            version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    except DBAPIError:
        tables = inspect(connection).get_table_names()  # raises too if the error was not just a missing table
        if tables:
            raise StoreError(
                f"{name} holds other tables ({', '.join(tables[:3])}); give tilewise a database of its own"
            ) from None
        return None
    if version is None or not version.isdigit() or int(version) > int(HEAD):
        raise StoreError(f"{name} has schema {version}, newer than {HEAD} of this tilewise; upgrade tilewise")
    return str(version)
