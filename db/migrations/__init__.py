"""The schema's history, applied by `tilewise.db.schema` when a database is opened.

A new revision is a numbered file in `versions/`, with `tilewise.db.schema.HEAD` raised to its number; tests hold that
the revisions lead to exactly the tables and the view of `tilewise.db.models`.
"""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

__all__ = ["alembic_config", "upgrade"]

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
