"""The schema's history, applied by `tilewise.db.sql.schema` when a database is opened.

To add a revision, add a numbered file to `versions/` and raise `HEAD` in `tilewise.db.sql.schema` to its number. Tests
check that the revisions lead to exactly the tables and the view of `tilewise.db.sql.models`.
"""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

__all__ = ["alembic_config", "steps", "upgrade"]

_one_at_a_time = threading.Lock()  # Alembic keeps the running migration in a module


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
    """Return the revisions after one, up to another, oldest first: the number and summary of each."""
    revisions = ScriptDirectory.from_config(alembic_config()).iterate_revisions(until, after or "base")
    return [f"{revision.revision}: {revision.doc}" for revision in revisions][::-1]
