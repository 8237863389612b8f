"""Tests of `tilewise.db.check`, on sound and on damaged databases."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from places import ROOT
from sqlalchemy import create_engine, make_url

from tilewise.db.check import MOST_FAULTS, check
from tilewise.db.records import Problem, Status, Suggestion
from tilewise.db.sql.schema import HEAD
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError


@pytest.fixture(params=["file_url", "postgres_url"])
def url(request, make_scope, make_trial):
    """Return the URL of a database with two scopes, three trials and a suggestion."""
    url = request.getfixturevalue(request.param)
    with open_store(url) as store:
        store.record(make_scope(), [make_trial(), make_trial(None, status=Status.TIMEOUT)])
        store.record(make_scope(dtype="float16"), [make_trial()])
        store.suggest([Suggestion(Problem("softmax", {"N": 1}, "float32"), "NVIDIA H200", {"BLOCK": 64}, "a table")])
    return url


def spoil(url: str, *statements: str) -> None:
    """Change rows behind the program's back; SQLite checks foreign keys only on request."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def found(url: str) -> dict[str, tuple[str, ...]]:
    return {part.name: part.faults for part in check(url).checks if part.faults}


def test_a_whole_database_has_no_faults(url):
    health = check(url)
    assert (health.whole, health.revision) == (True, HEAD)
    assert (health.rows["scopes"], health.rows["trials"]) == (2, 3)
    names = ("integrity", "schema", "references", "scopes", "trials", "suggestions", "answers")
    assert tuple(part.name for part in health.checks) == names
    left_out = [part.name for part in health.checks if part.left_out]
    assert left_out == (["integrity"] if url.startswith("postgresql") else [])


@pytest.mark.parametrize(
    ("statement", "part", "fault"),
    [
        ("UPDATE trials SET facts = '{' WHERE id = 1", "trials", "trials 1: it cannot be read"),
        ("UPDATE trials SET samples = -1 WHERE id = 1", "trials", "trials 1: samples is -1; expected 0 or more"),
        (
            "UPDATE trials SET config = '{\"B\":7}' WHERE id = 1",
            "trials",
            "trials 1: its config_key does not match its other columns",
        ),
        ("UPDATE scopes SET dtype = 'int8' WHERE id = 2", "scopes", "scopes 2: its key does not match its other"),
        (
            "UPDATE trials SET standing_us = 1 WHERE id = 3",
            "trials",
            "trials 3: its standing_us does not match its other",
        ),
        (
            "UPDATE suggestions SET device = 'x'",
            "suggestions",
            "suggestions 1: its key does not match its other columns",
        ),
        ("UPDATE scopes SET dims = '' WHERE id = 2", "scopes", "scopes 2: it cannot be read"),
        ("DROP INDEX ix_trials_tally", "schema", "the index ix_trials_tally is missing"),
        ("DROP VIEW best", "schema", "the view best is missing"),
        ("ALTER TABLE compilations RENAME TO others", "schema", "the table compilations is missing"),
        (
            "ALTER TABLE compilations RENAME COLUMN beats TO others",
            "schema",
            "the column compilations.beats is missing",
        ),
        ("UPDATE alembic_version SET version_num = '0000'", "schema", f"0000; expected schema {HEAD}: run tilewise"),
    ],
)
def test_impossible_content_is_named(url, statement, part, fault):
    spoil(url, statement)
    [(name, (line,))] = found(url).items()
    assert name == part
    assert fault in line


@pytest.mark.parametrize(
    ("statement", "part", "fault"),
    [
        ("UPDATE trials SET time_us = 'soon' WHERE id = 2", "trials", "trials 2: it cannot be read"),
        ("UPDATE trials SET created = 'today' WHERE id = 2", "trials", "trials 2: it cannot be read"),
        ("UPDATE trials SET scope_id = 9 WHERE id = 3", "references", "trials 3: its scope_id is not in scopes"),
    ],
)
def test_content_that_postgresql_would_refuse_is_named(file_url, make_scope, make_trial, statement, part, fault):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial(), make_trial(), make_trial()])
    spoil(file_url, statement)
    [(name, (line,))] = found(file_url).items()
    assert name == part
    assert fault in line


def test_a_trial_in_the_future_is_named(url, make_scope, make_trial):
    with open_store(url) as store:
        store.record(make_scope(), [make_trial(created=datetime.now(UTC) + timedelta(days=400))])
    [line] = found(url)["trials"]
    assert line.startswith("trials 4: created ")
    assert line.endswith("in the future: a clock was wrong")


@pytest.mark.parametrize(("ahead", "is_fault"), [(4.7, False), (5.3, True)])
def test_clocks_may_differ_by_five_minutes(file_url, make_scope, make_trial, ahead, is_fault):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial(created=datetime.now(UTC) + timedelta(minutes=ahead))])
    assert bool(found(file_url)) is is_fault


def test_times_from_a_clock_that_ran_ahead_can_be_corrected(url, make_scope, make_trial):
    page = (ROOT / "docs/operations.md").read_text()
    statements = re.findall(r"^((?:UPDATE trials|DELETE FROM) .*);$", page, re.MULTILINE)
    assert len(statements) == 2
    with open_store(url) as store:
        store.record(make_scope(toolchain="old"), [make_trial(created=datetime.now(UTC) + timedelta(days=400))])
        spoil(url, *statements)
        assert check(url).whole
        assert store.lookup(make_scope().question).scope.toolchain == "old"
        store.record(make_scope(toolchain="new"), [make_trial(created=datetime.now(UTC) + timedelta(seconds=2))])
        assert store.lookup(make_scope().question).scope.toolchain == "new"


def test_faults_beyond_the_first_are_counted_as_more(file_url, make_scope, make_trial):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial() for _ in range(MOST_FAULTS + 5)])
    spoil(file_url, "UPDATE trials SET seconds = -1")
    lines = found(file_url)["trials"]
    assert (len(lines), lines[-1]) == (MOST_FAULTS + 1, "and more")


def test_damaged_pages_are_found_and_nothing_is_read_from_them(tmp_path, file_url, make_scope, make_trial):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial() for _ in range(200)])
    path = tmp_path / "tilewise.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [[page]] = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_trials_current'")
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    health = check(file_url)
    assert not health.whole
    assert health.checks[0].faults
    assert [part.left_out for part in health.checks[1:]] == ["the file is damaged"] * 6
    assert (health.revision, health.rows) == (None, {})


def test_a_check_changes_nothing(tmp_path, file_url, make_scope, make_trial):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial()])
    before = (tmp_path / "tilewise.db").read_bytes()
    check(file_url)
    assert (tmp_path / "tilewise.db").read_bytes() == before


def test_a_missing_database_is_reported(tmp_path, postgres_url):
    with pytest.raises(StoreError, match="no database at"):
        check(f"sqlite:///{tmp_path}/none.db")
    gone = make_url(postgres_url).set(database="nowhere").render_as_string(hide_password=False)
    with pytest.raises(StoreError, match="cannot reach"):
        check(gone)


def test_a_check_keeps_no_connection(tmp_path, file_url, make_scope, make_trial):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial()])
    check(file_url)
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    opened = [os.readlink(link) for link in links if os.path.lexists(link)]
    assert [path for path in opened if path.startswith(str(tmp_path))] == []
