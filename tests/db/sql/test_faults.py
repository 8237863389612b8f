"""Tests of real faults under a store: a full disk, a held lock, a read-only file system, a log left by a killed writer.

They assert what docs/operations.md says about each.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from faults import Mount, fill, held, mounted
from rights import NoRights
from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.exc import DatabaseError, IntegrityError, InterfaceError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from tilewise.db.backup import back_up
from tilewise.db.check import check
from tilewise.db.sql.faults import fault
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError


@pytest.fixture
def postgres_disk(postgres_server: URL, postgres_schema: Any) -> Iterator[tuple[str, Mount]]:
    """Yield a PostgreSQL database whose tables are on a file system of 2 MiB, and a function that remounts it."""
    home = Path(str(postgres_server.query["host"]))
    if not home.is_dir():
        raise NoRights("the server is not one of this machine's")
    folder = home / "disk"
    admin = create_engine(postgres_server, isolation_level="AUTOCOMMIT")
    with mounted(folder, "2m") as remount:
        shutil.chown(folder, home.owner(), home.group())
        with admin.connect() as connection:
            connection.execute(text(f"CREATE TABLESPACE small LOCATION '{folder}'"))
        with postgres_schema() as url:
            options = str(make_url(url).query["options"]) + " -cdefault_tablespace=small"
            yield make_url(url).update_query_dict({"options": options}).render_as_string(False), remount
        with admin.connect() as connection:
            connection.execute(text("DROP TABLESPACE small"))
    admin.dispose()
    folder.rmdir()


def test_a_disk_that_fills_up_loses_nothing_that_was_kept(disk, make_scope, make_trial):
    folder, _ = disk
    url, scope = f"sqlite:///{folder}/tiles.db", make_scope()
    kept = []
    with open_store(url) as store:

        def record_until_full() -> None:
            while trial := make_trial(why="x" * 5000):
                store.record(scope, [trial])
                kept.append(trial)

        with pytest.raises(StoreError, match=f"no space left for {folder}/tiles.db; nothing was written"):
            record_until_full()
        assert len(kept) > 10
        assert store.trials(scope) == kept
        assert store.lookup(scope.question).winner == kept[0]
    assert check(url).whole
    with open_store(url) as store:
        assert store.trials(scope) == kept


def test_after_space_was_freed_the_same_store_goes_on(disk, make_scope, make_trial):
    folder, _ = disk
    with open_store(f"sqlite:///{folder}/tiles.db") as store:
        store.record(make_scope(), [first := make_trial()])
        ballast = fill(folder)
        with pytest.raises(StoreError, match="no space left"):
            store.record(make_scope(), [make_trial(why="x" * 100_000)])
        ballast.unlink()
        store.record(make_scope(), [second := make_trial(why="x" * 100_000)])
        assert store.trials(make_scope()) == [first, second]


def test_a_full_disk_under_postgresql_is_reported_and_nothing_half_written(postgres_disk, make_scope, make_trial):
    url, remount = postgres_disk
    with open_store(url) as store:
        store.record(make_scope(), [first := make_trial()])
        many = [make_trial(facts={"noise": os.urandom(1000).hex()}) for _ in range(3000)]
        with pytest.raises(StoreError, match=r"no space left for postgresql.*; nothing was written"):
            store.record(make_scope(), many)
        assert store.trials(make_scope()) == [first]
        remount("size=64m")
        store.record(make_scope(), many)
        assert store.trials(make_scope()) == [first, *many]


def test_a_full_disk_refuses_a_new_database_a_backup_and_an_upgrade_in_one_line(disk, file_url, make_scope, make_trial):
    folder, _ = disk
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial()])
    back_up(file_url, folder / "copy.db")
    copy = (folder / "copy.db").read_bytes()
    fill(folder)
    refused = f"no space left for {folder}/"
    with pytest.raises(StoreError, match=refused):
        open_store(f"sqlite:///{folder}/new.db")
    with pytest.raises(StoreError, match=refused):
        back_up(file_url, folder / "copy.db")
    assert (folder / "copy.db").read_bytes() == copy
    assert {path.name for path in folder.iterdir()} <= {"ballast", "copy.db", "new.db"}
    (folder / "ballast").unlink()
    open_store(f"sqlite:///{folder}/new.db").close()
    assert check(f"sqlite:///{folder}/new.db").whole


def test_a_read_only_file_system_answers_and_refuses_to_write(disk, make_scope, make_trial):
    folder, remount = disk
    url = f"sqlite:///{folder}/tiles.db"
    with open_store(url) as store:
        store.record(make_scope(), [trial := make_trial()])
    remount("ro")
    with open_store(url) as store:
        assert store.lookup(make_scope().question).winner == trial
        with pytest.raises(StoreError, match="is read-only; give write permission"):
            store.record(make_scope(), [make_trial()])
    assert check(url).whole
    with pytest.raises(StoreError, match=f"cannot write {folder}/copy.db: Read-only file system"):
        back_up(url, folder / "copy.db")
    back_up(url, folder.parent / "copy.db")
    assert check(f"sqlite:///{folder.parent}/copy.db").whole
    with pytest.raises(StoreError, match="cannot open"):
        open_store(f"sqlite:///{folder}/new.db")
    remount("rw")
    with open_store(url) as store:
        store.record(make_scope(), [second := make_trial()])
        assert store.trials(make_scope()) == [trial, second]


def test_a_lock_held_for_seconds_is_waited_for_and_readers_go_on(tmp_path, file_url, make_scope, make_trial):
    with open_store(file_url) as store, open_store(file_url + "?timeout=0.2") as hasty:
        store.record(make_scope(), [first := make_trial()])
        with ThreadPoolExecutor(1) as pool, held(tmp_path / "tilewise.db") as release:
            with pytest.raises(StoreError, match="stayed locked by another process for too long; wait until"):
                hasty.record(make_scope(), [make_trial()])
            with open_store(file_url) as reader:  # opening needs no lock unless there is something to upgrade
                assert reader.trials(make_scope()) == [first]
            assert check(file_url).whole
            writing = pool.submit(store.record, make_scope(), [second := make_trial()])
            assert not wait([writing], timeout=1.0).done
            release()
            writing.result()
        assert store.trials(make_scope()) == [first, second]


KILLED_WHILE_WRITING = """
import os, signal, sqlite3, sys
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store

scope = Scope(Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"), "a1", "Ascend910B4", Clock.MODELLED, "t", 40)
store = open_store(sys.argv[1])
for n in range(20):
    store.record(scope, [Trial({"B": n}, Status.CORRECT, time_us=5.0, verified=True)])
with store._database.write() as connection:  # killed between two statements of a transaction
    connection.exec_driver_sql("UPDATE trials SET current = 0")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_log_left_by_a_killed_writer_is_read_and_then_merged(tmp_path, file_url, python, make_scope):
    assert python(KILLED_WHILE_WRITING, file_url).wait(timeout=60) == -9
    assert (tmp_path / "tilewise.db-wal").stat().st_size > 0
    scope = make_scope(toolchain="t")
    with open_store(file_url, read_only=True) as store:
        assert len(store.trials(scope)) == 20
    assert check(file_url).whole
    with open_store(file_url) as store:
        assert len(store.trials(scope)) == 20
    assert not (tmp_path / "tilewise.db-wal").exists()


def test_a_log_left_on_a_disk_that_is_now_read_only_is_not_ignored(disk, python, make_scope):
    """Without its log the file lacks committed trials; answering from it would be wrong."""
    folder, remount = disk
    url = f"sqlite:///{folder}/tiles.db"
    assert python(KILLED_WHILE_WRITING, url).wait(timeout=60) == -9
    (folder / "tiles.db-shm").unlink()  # as after a copy or a restart of the machine
    remount("ro")
    with pytest.raises(StoreError, match="was left unfinished by a killed writer; open it once where it is writable"):
        open_store(url)
    remount("rw")
    with open_store(url) as store:
        assert len(store.trials(make_scope(toolchain="t"))) == 20


def test_a_copy_without_its_log_is_an_older_but_whole_database(tmp_path, file_url, python):
    """This is why a backup is made with `tilewise db backup` and not with cp."""
    python(KILLED_WHILE_WRITING, file_url).wait(timeout=60)
    shutil.copy(tmp_path / "tilewise.db", tmp_path / "copied.db")
    back_up(file_url, tmp_path / "backup.db")
    with closing(sqlite3.connect(tmp_path / "backup.db")) as database:
        assert database.execute("SELECT count(*) FROM trials").fetchone() == (20,)
    with closing(sqlite3.connect(tmp_path / "copied.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# Words for errors -------------------------------------------------------------------------------------------------


class Refused(Exception):
    """A driver's error, with SQLite's extended code or PostgreSQL's state."""

    def __init__(self, code: int | None = None, state: str | None = None, text: str = "details\nmore"):
        super().__init__(text)
        if code is not None:
            self.sqlite_errorcode = code
        if state is not None:
            self.sqlstate = state


@pytest.mark.parametrize(
    ("kind", "origin", "message"),
    [
        (OperationalError, Refused(sqlite3.SQLITE_BUSY), "tiles.db stayed locked"),
        (OperationalError, Refused(sqlite3.SQLITE_BUSY_SNAPSHOT), "tiles.db stayed locked"),
        (OperationalError, Refused(sqlite3.SQLITE_LOCKED_SHAREDCACHE), "tiles.db stayed locked"),
        (OperationalError, Refused(sqlite3.SQLITE_IOERR_READ), "cannot read or write tiles.db (details); check"),
        (OperationalError, Refused(sqlite3.SQLITE_IOERR_LOCK), "cannot read or write tiles.db (details); check"),
        (OperationalError, Refused(sqlite3.SQLITE_CANTOPEN_ISDIR), "cannot open tiles.db (details); check"),
        (OperationalError, Refused(sqlite3.SQLITE_READONLY_DBMOVED), "tiles.db is read-only"),
        (DatabaseError, Refused(sqlite3.SQLITE_CORRUPT_INDEX), "tiles.db is damaged (details); restore"),
        (DatabaseError, Refused(sqlite3.SQLITE_NOTADB), "tiles.db is not a database"),
        (OperationalError, Refused(sqlite3.SQLITE_FULL), "no space left for tiles.db"),
        (OperationalError, Refused(sqlite3.SQLITE_PERM), "tiles.db is read-only"),
        (OperationalError, Refused(sqlite3.SQLITE_ERROR), "tiles.db refused: details"),
        (IntegrityError, Refused(sqlite3.SQLITE_CONSTRAINT_UNIQUE), "tiles.db refused: details"),
        (OperationalError, Refused(state="53100"), "no space left for tiles.db"),
        (OperationalError, Refused(state="55P03"), "tiles.db stayed locked"),
        (OperationalError, Refused(state="40P01"), "tiles.db: another process wrote to the same problems"),
        (OperationalError, Refused(state="57P01"), "tiles.db refused: details"),
        (InterfaceError, Refused(state="42501"), "tiles.db is read-only"),
        (ProgrammingError, Refused(state="25006"), "tiles.db is read-only"),
        (OperationalError, Refused(), "cannot reach tiles.db (details); check that the server"),
        (InterfaceError, Refused(), "cannot reach tiles.db (details); check that the server"),
        (ProgrammingError, Refused(), "tiles.db refused: details"),
        (ProgrammingError, Refused(text=""), "tiles.db refused: Refused"),
    ],
)
def test_an_error_is_told_in_one_line_by_its_code(kind, origin, message):
    told = str(fault("tiles.db", kind("SELECT 1", {}, origin)))
    assert told.startswith(message)
    assert "\n" not in told


def test_a_pool_without_a_free_connection_counts_as_a_lock():
    assert str(fault("tiles.db", PoolTimeout())).startswith("tiles.db stayed locked")


def test_an_error_of_the_driver_itself_is_told_as_it_is():
    assert str(fault("tiles.db", sqlite3.ProgrammingError("closed"))) == "tiles.db refused: closed"
