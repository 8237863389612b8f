"""A database leaves no file open: not after its end, nor where opening, checking or copying it fails."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tilewise.db import backup
from tilewise.db.backup import back_up
from tilewise.db.check import check
from tilewise.db.sql.database import connect
from tilewise.db.sql.sql_store import open_store
from tilewise.db.summary import summarize
from tilewise.errors import StoreError


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[], list[str]]:
    """A function that returns the names of this test's files that this process has open."""

    def names() -> list[str]:
        found = []
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            except FileNotFoundError:  # of the listing itself
                continue
            found += [place.name] if place.is_relative_to(tmp_path) else []
        return sorted(found)

    return names


@pytest.fixture
def filled(file_url: str, make_scope: Any, make_trial: Any) -> str:
    """The URL of a database with a trial."""
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial()])
    return file_url


def test_a_store_that_is_closed_has_no_file_open(filled, opened):
    store = open_store(filled)
    changes = store.changes()
    assert list(store.scopes())
    assert "tilewise.db" in opened()
    changes.close()
    store.close()
    assert opened() == []


@pytest.mark.parametrize("act", [open_store, summarize])
def test_a_database_that_is_none_is_closed(tmp_path, opened, act):
    with closing(sqlite3.connect(tmp_path / "tilewise.db")) as other, other:
        other.execute("CREATE TABLE others (id)")
    with pytest.raises(StoreError) as refused:
        act(f"sqlite:///{tmp_path / 'tilewise.db'}")
    assert refused.value.__traceback__ is not None  # it holds what was opened
    assert opened() == []


@pytest.mark.parametrize("act", [check, summarize])
def test_what_only_looks_at_a_database_closes_it(filled, opened, act):
    act(filled)
    assert opened() == []


def test_a_copy_is_closed_and_so_is_one_that_fails(filled, tmp_path, opened, monkeypatch):
    back_up(filled, tmp_path / "copy.db")
    assert opened() == []
    synced = []
    monkeypatch.setattr(backup.os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    back_up(filled, tmp_path / "copy.db")
    assert [Path(name).suffix or Path(name).name for name in synced] == [".partial", tmp_path.name]

    def fail(handle):
        raise OSError(5, "it is broken")

    monkeypatch.setattr(backup.os, "fsync", fail)
    with pytest.raises(StoreError, match="it is broken") as failed:
        back_up(filled, tmp_path / "copy.db")
    assert failed.value.__traceback__ is not None
    assert opened() == []
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name) == ["copy.db"]


def test_a_connection_that_comes_back_after_the_end_is_closed(filled, opened):
    database = connect(filled, create=False, read_only=False)
    one, other = database._connection(), database._connection()
    database._put_back(one)
    database._put_back(other)  # one is kept already
    assert database._idle == [one]
    late = database._connection()
    assert late is one and database._idle == []
    database.close()
    database._put_back(late)
    assert database._idle == []


def test_a_snapshot_gives_its_connection_back(filled, opened):
    with open_store(filled) as store:
        with store.snapshot() as frozen:
            assert list(frozen.scopes())
        with pytest.raises(StoreError):
            list(frozen.scopes())
        assert store.database.engine.pool.checkedout() == len(store.database._idle)
    assert opened() == []
