"""Puts empty databases where tests need one. Creating one takes seven times as long as opening it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import make_url

from tilewise.db.sql.sql_store import open_store

__all__ = ["place_empty_database"]


def place_empty_database(url: str) -> None:
    """Copy an empty database of the present schema to an SQLite URL, unless a file is there already."""
    file = Path(make_url(url).database or "")
    if make_url(url).get_backend_name() == "sqlite" and not file.exists():
        file.write_bytes(_empty())


@cache
def _empty() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder, "tilewise.db")
        with open_store(f"sqlite:///{file}", create=True):
            pass
        assert list(file.parent.iterdir()) == [file], "not all of it is in the file"
        return file.read_bytes()
