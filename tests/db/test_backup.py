"""Tests of copying a database that is in use."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from tilewise.db.backup import back_up
from tilewise.db.check import check
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError, UsageError

WRITER = """
import itertools, sys
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store

scope = Scope(Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"), "a1", "Ascend910B4", Clock.MODELLED, "t", 40)
with open_store(sys.argv[1]) as store:
    for n in itertools.count(1):  # two trials per transaction
        store.record(scope, [Trial({"B": n, "half": half}, Status.CORRECT, time_us=5.0) for half in (1, 2)])
        print(n, flush=True)
"""


def test_a_copy_taken_while_another_process_writes_is_of_one_moment(tmp_path, file_url, python, make_scope):
    writer = python(WRITER, file_url)
    assert writer.stdout.readline() == "1\n"
    copy = tmp_path / "copies" / "copy.db"
    sizes = []
    for _ in range(5):
        back_up(file_url, copy)
        health = check(f"sqlite:///{copy}")
        assert health.whole
        sizes.append(health.rows["trials"])
        assert writer.stdout.readline().endswith("\n")
    assert all(size % 2 == 0 for size in sizes), "half a transaction"
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    assert [path.name for path in copy.parent.iterdir()] == ["copy.db"]


def test_a_copy_can_be_opened_and_holds_all(tmp_path, file_url, make_scope, make_trial):
    trials = [make_trial(), make_trial(), make_trial()]
    with open_store(file_url) as store:
        store.record(make_scope(), trials)
        made = back_up(file_url, tmp_path / "copy.db")
    assert made.bytes == (tmp_path / "copy.db").stat().st_size
    with open_store(f"sqlite:///{tmp_path}/copy.db", create=False) as store:
        assert store.trials(make_scope()) == trials


@pytest.mark.parametrize("mode", [0o640, 0o666, 0o400])
def test_a_copy_may_be_read_by_those_who_may_read_the_database(tmp_path, file_url, mode):
    open_store(file_url).close()
    (tmp_path / "tilewise.db").chmod(mode)
    back_up(file_url, tmp_path / "copy.db")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == mode


def test_a_copy_is_on_the_disk_before_it_takes_the_place_of_the_older_one(tmp_path, file_url, monkeypatch):
    """A machine may lose its power at any moment."""
    open_store(file_url).close()
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append(Path(f"/proc/self/fd/{file}").resolve()), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *files: (steps.append("replace"), replace(*files)))
    back_up(file_url, tmp_path / "copies" / "copy.db")
    part, *others = steps
    assert part.suffix == ".partial" and others == ["replace", tmp_path / "copies"]


def test_backups_leave_no_file_open(tmp_path, file_url):
    open_store(file_url).close()

    def opened():
        return len(os.listdir("/proc/self/fd"))

    back_up(file_url, tmp_path / "copy.db")
    before = opened()
    for _ in range(3):
        back_up(file_url, tmp_path / "copy.db")
    assert opened() == before


def test_a_failed_copy_leaves_the_older_one_as_it_was(tmp_path, file_url, make_scope, make_trial):
    copy = tmp_path / "copy.db"
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial(why="x" * 100) for _ in range(200)])
    back_up(file_url, copy)
    before = copy.read_bytes()
    with closing(sqlite3.connect(tmp_path / "tilewise.db")) as database:
        [[page]] = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_trials_current'")
    content = bytearray((tmp_path / "tilewise.db").read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    (tmp_path / "tilewise.db").write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        back_up(file_url, copy)
    assert copy.read_bytes() == before
    assert sorted(path.name for path in tmp_path.glob("*copy*")) == ["copy.db"]


@pytest.mark.parametrize("target", ["tilewise.db", "other.db"])
def test_a_database_in_use_is_not_overwritten(tmp_path, file_url, make_scope, make_trial, target):
    with open_store(file_url), open_store(f"sqlite:///{tmp_path}/other.db") as other:
        other.record(make_scope(), [make_trial()])
        with pytest.raises(UsageError, match=rf"{target} is a database in use; choose another file"):
            back_up(file_url, tmp_path / target)
        assert len(other.trials(make_scope())) == 1


def test_a_file_that_is_not_a_database_is_not_overwritten(tmp_path, file_url):
    open_store(file_url).close()
    (tmp_path / "notes.txt").write_text("some notes, all of them mine")
    with pytest.raises(StoreError, match="is not a database"):
        back_up(file_url, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "some notes, all of them mine"


def test_for_postgresql_the_command_is_named_without_the_password(tmp_path):
    with pytest.raises(UsageError) as caught:
        back_up("postgresql+psycopg://me:secret@host:5433/tiles", tmp_path / "my copy")
    assert str(caught.value).endswith(
        f"run: pg_dump --format=custom --file='{tmp_path}/my copy' postgresql://me@host:5433/tiles"
    )


KILLED_BACKUPS = """
import os, signal, sys
from pathlib import Path
from tilewise.db import backup

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

url, copy = sys.argv[1], Path(sys.argv[2])
for moment in ("_fill", "_sync", "os.replace"):
    child = os.fork()
    if child == 0:
        owner, name = (os, "replace") if moment == "os.replace" else (backup, moment)
        if moment == "_fill":  # after it: the copy is complete, but not in place
            fill = backup._fill
            backup._fill = lambda *arguments: (fill(*arguments), die())
        else:
            setattr(owner, name, die)
        backup.back_up(url, copy)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
print("done")
"""


def test_a_backup_killed_at_any_moment_leaves_the_older_copy(tmp_path, file_url, python, make_scope, make_trial):
    copy = tmp_path / "copies" / "copy.db"
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial()])
        back_up(file_url, copy)
        store.record(make_scope(), [make_trial()])
    before = copy.read_bytes()
    out, err = python(KILLED_BACKUPS, file_url, str(copy)).communicate(timeout=60)
    assert out == "done\n", err
    assert copy.read_bytes() == before
    back_up(file_url, copy)
    assert check(f"sqlite:///{copy}").rows["trials"] == 2
