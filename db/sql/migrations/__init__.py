"""The schema's history, applied by `tilewise.db.sql.schema` when a database is opened.

A new revision is a numbered file in `versions/`, with `HEAD` in `tilewise.db.sql.schema` raised to its number; tests
hold that the revisions lead to exactly the tables and the view of `tilewise.db.sql.models`.
"""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

__all__ = ["alembic_config", "steps", "upgrade"]

_one_at_a_time = threading.Lock()  # Alembic keeps the migration under way in a module


def alembic_config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection, revision: str) -> None:
    """Run the missing revisions up to `revision` inside the connection's transaction."""
    with _one_at_a_time:
        command.upgrade(alembic_config(connection), revision)


def steps(after: str | None, until: str) -> list[str]:
    """The revisions after one, up to another, oldest first: number and what each brings."""
    revisions = ScriptDirectory.from_config(alembic_config()).iterate_revisions(until, after or "base")
    return [f"{revision.revision}: {revision.doc}" for revision in revisions][::-1]
