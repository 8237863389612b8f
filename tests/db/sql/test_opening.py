"""Tests of opening a database: what is created, what is refused, and the messages."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from rights import NoRights
from sqlalchemy import Engine, event, func, select

from tilewise.db.records import Problem, Question
from tilewise.db.sql import models
from tilewise.db.sql.database import connect_untouched
from tilewise.db.sql.sql_store import open_store
from tilewise.db.sql.sqlite import _switched, create_untouched_engine
from tilewise.errors import StoreError

QUESTION = Question(Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"), "Ascend910B4")


def refusal(url: str, **options: bool) -> str:
    with pytest.raises(StoreError) as caught:
        open_store(url, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_folder_of_a_new_database_is_created(tmp_path):
    path = tmp_path / "not" / "there" / "yet.db"
    with open_store(f"sqlite:///{path}") as store:
        assert store.devices() == []
        assert store.name == str(path)
    assert path.exists()


def test_a_missing_database_is_created_only_on_request(tmp_path):
    path = tmp_path / "folder" / "missing.db"
    for options in ({"create": False}, {"read_only": True}):
        assert f"no database at {path}" in refusal(f"sqlite:///{path}", **options)
    assert not path.parent.exists()


def test_an_empty_file_becomes_a_database(tmp_path):
    path = tmp_path / "empty.db"
    path.touch()
    assert "is empty and is opened read-only" in refusal(f"sqlite:///{path}", read_only=True)
    with open_store(f"sqlite:///{path}", create=False) as store:
        assert store.devices() == []


def test_an_empty_database_of_the_smallest_page_becomes_one_of_tilewise(tmp_path):
    """One page of 512 bytes; anything shorter is not SQLite's."""
    path = tmp_path / "small.db"
    with closing(sqlite3.connect(path)) as small:
        small.executescript("PRAGMA page_size = 512; CREATE TABLE one (column); DROP TABLE one; VACUUM")
    assert path.stat().st_size == 512
    with open_store(f"sqlite:///{path}") as store:
        assert store.devices() == []


@pytest.mark.parametrize("content", ["x", "x" * 511, "some notes\n" * 1000])
def test_a_file_that_is_not_a_database_is_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    assert f"{path} is not a database" in refusal(f"sqlite:///{path}")
    assert path.read_text() == content


def test_a_damaged_database_is_refused(tmp_path, file_url, make_scope, make_trial):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial()])
    path = tmp_path / "tilewise.db"
    path.write_bytes(path.read_bytes()[:16] + b"\xff" * 8000)
    message = refusal(file_url)
    assert "not a database" in message or "damaged" in message


def test_a_database_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE bookmarks (url)")
    before = path.read_bytes()
    assert "holds other tables (bookmarks)" in refusal(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(tmp_path, file_url):
    open_store(file_url).close()
    with sqlite3.connect(tmp_path / "tilewise.db") as newer:
        newer.execute("UPDATE alembic_version SET version_num = '0999'")
    newer.close()
    assert "has schema 0999, newer than" in refusal(file_url)
    assert "upgrade tilewise" in refusal(file_url, read_only=True)


@pytest.mark.parametrize(
    ("statement", "version"),
    [("UPDATE alembic_version SET version_num = 'next'", "next"), ("DELETE FROM alembic_version", "None")],
)
def test_a_schema_of_no_number_is_refused(tmp_path, file_url, statement, version):
    open_store(file_url).close()
    with closing(sqlite3.connect(tmp_path / "tilewise.db")) as changed:
        changed.execute(statement)
        changed.commit()
    assert f"has schema {version}, newer than" in refusal(file_url)


def test_a_folder_is_refused(tmp_path):
    assert f"{tmp_path} is a folder" in refusal(f"sqlite:///{tmp_path}")


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").touch()
    assert "cannot create the folder" in refusal(f"sqlite:///{tmp_path}/file/new.db")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("tilewise.db", "'tilewise.db' is not a database URL; expected sqlite:///"),
        ("", "is not a database URL"),
        ("sqlite:///x.db?timeout=soon", "is not a database URL"),
        (
            "postgresql+psycopg://me:secret@host:port/name",
            "'postgresql+psycopg://me:***@host:port/name' is not a database",
        ),
        ("nosuch://host/name", "unknown database driver 'nosuch'"),
        ("sqlite+nosuch:///x.db", "unknown database driver 'sqlite+nosuch'"),
        ("mysql://host/name", "'mysql' is not supported"),
        ("sqlite+aiosqlite:///x.db", "'sqlite+aiosqlite' is not supported"),
    ],
)
def test_an_invalid_url_is_refused(url, complaint):
    assert complaint in refusal(url)


@pytest.mark.parametrize(("driver", "package"), [("pg8000", "pg8000"), ("psycopg", "tilewise[postgres]")])
def test_a_missing_driver_is_named(monkeypatch, driver, package):
    monkeypatch.setitem(sys.modules, driver, None)  # as if it were not installed
    message = refusal(f"postgresql+{driver}://me:secret@host/name")
    assert message == f"the driver of 'postgresql+{driver}' is not installed: pip install '{package}'"


def test_an_unreachable_server_is_reported_without_the_password():
    message = refusal("postgresql+psycopg://me:secret@127.0.0.1:1/name")
    assert "cannot reach" in message
    assert "secret" not in message


def test_a_read_only_store_answers_and_refuses_to_write(file_url, make_scope, make_trial):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial()])
    with open_store(file_url, read_only=True) as store:
        assert store.lookup(QUESTION) is not None
        with pytest.raises(StoreError, match="is read-only"):
            store.record(make_scope(), [make_trial()])
        assert len(store.trials(make_scope())) == 1


def test_a_read_only_uri_of_sqlite_is_honoured(tmp_path, file_url, make_scope, make_trial):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial()])
    with open_store(f"sqlite:///file:{tmp_path}/tilewise.db?mode=ro&uri=true") as store:
        assert store.lookup(QUESTION) is not None
        with pytest.raises(StoreError, match="is read-only"):
            store.record(make_scope(), [make_trial()])


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """Yield a folder that any user can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="tilewise-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


AS_SOMEBODY_WITHOUT_WRITE_PERMISSION = """
import os, sys
from tilewise.db.records import Clock, Problem, Question, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError

url = "sqlite:///" + sys.argv[1]
question = Question(Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"), "Ascend910B4")
with open_store("sqlite://") as warm_up:  # imports everything needed, which the other user may not be able to read
    warm_up.lookup(question)
if os.getuid() == 0:  # permissions do not bind root
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for read_only in (False, True):
    with open_store(url, read_only=read_only) as store:
        result = store.lookup(question)
        print(result.winner.time_us)
        try:
            store.record(result.scope, [result.winner])
        except StoreError as error:
            print(error)
"""


def test_a_file_without_write_permission_answers_and_refuses_to_write(shared_folder, python, make_scope, make_trial):
    path = shared_folder / "tilewise.db"
    with open_store(f"sqlite:///{path}") as store:
        store.record(make_scope(), [make_trial(47.5)])
    path.chmod(0o444)
    shared_folder.chmod(0o555)
    out, err = python(AS_SOMEBODY_WITHOUT_WRITE_PERMISSION, str(path)).communicate(timeout=60)
    refused = f"{path} is read-only; give write permission on the file and its folder, or use another database"
    assert out.splitlines() == ["47.5", refused] * 2, err


def test_a_reader_without_write_permission_sees_later_writes(shared_folder, python, make_scope, make_trial):
    """The reader cannot create the log's files, and must not rely on its first look forever."""
    if os.getuid() != 0:
        raise NoRights("needs a writer who may do more than the reader: run as root")
    path = shared_folder / "tilewise.db"
    with open_store(f"sqlite:///{path}") as store:
        store.record(make_scope(), [make_trial(50)])
    reader = python(
        AS_SOMEBODY_WITHOUT_WRITE_PERMISSION.split("for read_only")[0]
        + "store = open_store(url)\n"
        + "for line in sys.stdin:\n"
        + "    print(store.lookup(question).winner.time_us, flush=True)\n",
        str(path),
        stdin=subprocess.PIPE,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    for time in (40, 30):
        with open_store(f"sqlite:///{path}") as store:
            store.record(make_scope(), [make_trial(time)])
        reader.stdin.write("look\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == f"{time}.0\n"


def test_a_lock_held_too_long_is_reported(tmp_path, file_url, make_scope, make_trial):
    with open_store(file_url + "?timeout=0.05") as store:
        other = sqlite3.connect(tmp_path / "tilewise.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="stayed locked by another process"):
            store.record(make_scope(), [make_trial()])
        assert store.lookup(QUESTION) is None  # readers do not wait
        other.execute("ROLLBACK")
        other.close()
        store.record(make_scope(), [make_trial()])
        assert store.lookup(QUESTION) is not None


def test_a_full_disk_is_reported_and_nothing_half_written(file_url, make_scope, make_trial):
    def leave_no_room(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count=1")  # SQLite uses the present size instead, so no page can be added

    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial()])
    event.listen(Engine, "connect", leave_no_room)
    try:
        with open_store(file_url) as store:
            with pytest.raises(StoreError, match="no space left for"):
                store.record(make_scope(dtype="float16"), [make_trial(why="x" * 200_000)])
            assert len(list(store.scopes())) == 1
    finally:
        event.remove(Engine, "connect", leave_no_room)
    with open_store(file_url) as store:
        store.record(make_scope(dtype="float16"), [make_trial(why="x" * 200_000)])
        assert len(list(store.scopes())) == 2


def failing(code):
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code

    def execute(statement):
        raise error

    return SimpleNamespace(execute=execute)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY])
def test_a_switch_to_a_log_is_tried_again_while_the_file_is_busy_until_the_last_time(code):
    assert _switched(failing(code), last=False) is False
    with pytest.raises(sqlite3.OperationalError):
        _switched(failing(code), last=True)
    with pytest.raises(sqlite3.OperationalError):
        _switched(failing(sqlite3.SQLITE_READONLY), last=False)


@pytest.mark.parametrize(
    ("log", "index", "refused"), [(None, False, 0), (b"", False, 0), (b"x", False, 1), (b"x", True, 0)]
)
def test_a_database_is_not_read_untouched_where_its_log_has_to_be_applied(tmp_path, log, index, refused):
    path = tmp_path / "tiles.db"
    if log is not None:
        (tmp_path / "tiles.db-wal").write_bytes(log)
    if index:
        (tmp_path / "tiles.db-shm").touch()
    with pytest.raises(StoreError, match="was left unfinished by a killed writer") if refused else nullcontext():
        create_untouched_engine(path)


@pytest.mark.parametrize(("query", "timeout"), [("", "5"), ("?connect_timeout=7", "7")])
def test_a_server_is_read_untouched_within_some_seconds_and_never_written(query, timeout):
    pytest.importorskip("psycopg")
    database = connect_untouched(f"postgresql+psycopg://me:secret@127.0.0.1:1/name{query}", 5.0)
    with closing(database):
        assert (database.is_file, database.engine.url.query["connect_timeout"]) == (False, timeout)
        assert "secret" not in database.name
        with pytest.raises(StoreError, match="read-only"), database.write():
            pass


def test_a_file_is_read_untouched_where_there_is_one_and_never_written(tmp_path, file_url, make_scope, make_trial):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial()])
    files = {*tmp_path.iterdir()}
    with closing(connect_untouched(file_url, 1.0)) as database:
        assert (database.is_file, database.name) == (True, str(tmp_path / "tilewise.db"))
        assert database.fetch_value(select(func.count()).select_from(models.trials)) == 1
        with pytest.raises(StoreError, match="read-only"), database.write():
            pass
        assert {*tmp_path.iterdir()} == files
    with pytest.raises(StoreError, match=r"only be read by opening it for writing; name a file: sqlite:///tiles\.db"):
        connect_untouched("sqlite://", 1.0)
    with pytest.raises(StoreError, match=r"missing\.db"):
        connect_untouched(f"sqlite:///{tmp_path}/missing.db", 1.0)
    assert {*tmp_path.iterdir()} == files
