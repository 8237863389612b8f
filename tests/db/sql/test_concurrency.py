"""Tests of several processes and threads on one SQLite file, and of killed writers."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewise.db.exchange.native.export_file import export_native
from tilewise.db.sql.sql_store import open_store

WRITER = """
import itertools, sys
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store

url, dtype, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
scope = Scope(Problem("row_reduce", {"M": 1000, "N": 8192}, dtype), "a1", "Ascend910B4", Clock.MODELLED, "t", 40)
store = open_store(url)
print("ready", flush=True)
if len(sys.argv) > 4:
    sys.stdin.readline()
for ordinal in itertools.islice(itertools.count(1), limit or None):
    store.record(scope, [Trial({"BLOCK": ordinal}, Status.CORRECT, time_us=50.0, ordinal=ordinal)])
    print(ordinal, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_was_committed(file_url, python, make_scope):
    for kept in (3, 40):
        writer = python(WRITER, file_url, f"dtype {kept}", "0")
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        printed = [int(writer.stdout.readline()) for _ in range(kept)]
        writer.kill()
        printed += [int(line) for line in writer.stdout if line.endswith("\n")]
        with open_store(file_url) as store:
            stored = [trial.ordinal for trial in store.trials(make_scope(dtype=f"dtype {kept}", toolchain="t"))]
        assert stored[: len(printed)] == printed
        assert len(stored) <= len(printed) + 1  # the one in flight may have been stored too


def test_processes_writing_different_scopes_lose_nothing(file_url, python, make_scope):
    writers = [python(WRITER, file_url, dtype, "60") for dtype in ("float32", "float16", "bfloat16")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    with open_store(file_url) as store:
        for dtype in ("float32", "float16", "bfloat16"):
            trials = store.trials(make_scope(dtype=dtype, toolchain="t"))
            assert [trial.ordinal for trial in trials] == list(range(1, 61))


def test_processes_writing_one_scope_keep_one_current_trial_per_config(file_url, python, make_scope):
    writers = [python(WRITER, file_url, "float32", "30") for _ in range(2)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    with open_store(file_url) as store:
        assert sorted(t.ordinal for t in store.trials(make_scope(toolchain="t"))) == list(range(1, 31))


VISITOR = """
import sys
from tilewise.db.sql.sql_store import open_store

with open_store(sys.argv[1]) as store:
    print(len(list(store.scopes())))
"""


@pytest.mark.full
def test_a_visitor_does_not_take_the_log_from_a_process_with_two_stores_of_one_file(
    file_url, python, make_scope, make_trial
):
    with open_store(file_url) as one, open_store(file_url) as other:
        for kept in (0, 2, 4):
            assert python(VISITOR, file_url).communicate(timeout=60)[0] == f"{kept}\n"
            one.record(make_scope(cores=kept + 1), [make_trial()])
            other.record(make_scope(cores=kept + 2), [make_trial()])


OPENER = """
import sys
from tilewise.db.sql.sql_store import open_store

open_store("sqlite://").close()  # all imports done, so that the processes meet at the file
print("ready", flush=True)
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    print(store.devices(), flush=True)
"""


def test_processes_opening_a_new_file_at_once_all_succeed(tmp_path, python):
    openers = [python(OPENER, f"sqlite:///{tmp_path}/new/file.db", stdin=-1) for _ in range(4)]
    for opener in openers:
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        opener.stdin.write("go\n")
        opener.stdin.flush()
    for opener in openers:
        out, err = opener.communicate(timeout=60)
        assert (out, opener.returncode) == ("[]\n", 0), err
    with sqlite3.connect(tmp_path / "new" / "file.db") as database:
        assert database.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_threads_share_a_store(store, make_scope, make_trial):
    scopes = [make_scope(dims={"M": size, "N": 1}) for size in range(1, 9)]
    trials = {scope.key: [make_trial() for _ in range(5)] for scope in scopes}

    def tune(scope):
        for trial in trials[scope.key]:
            store.record(scope, [trial])
            assert store.result(scope).winner is not None

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(tune, scopes))
    assert {scope.key: store.trials(scope) for scope in scopes} == trials


MERGER = """
import itertools, sys
from datetime import UTC, datetime, timedelta
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store

store = open_store(sys.argv[1])
for round in itertools.count():
    moment = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(seconds=round)
    trial = Trial({"BLOCK": 1}, Status.CORRECT, time_us=50.0 + round, samples=round, verified=True, created=moment)
    sizes = (*range(1, 30), 30 + round)
    scopes = [Scope(Problem("k", {"M": m}, "float32"), "a", "Ascend910B4", Clock.MODELLED, "t", 40) for m in sizes]
    store.merge([(scope, [trial]) for scope in scopes])
    print(round, flush=True)
"""


def test_an_export_beside_a_writer_is_of_one_moment(file_url, python):
    """Each transaction of the writer gives all scopes the same new time, and adds one scope."""
    writer = python(MERGER, file_url)
    assert writer.stdout.readline() == "0\n"
    seen, rounds, give_up = set(), 0, time.monotonic() + 60
    while rounds < 40 or (len(seen) <= 5 and time.monotonic() < give_up):
        rounds += 1
        with open_store(file_url) as opened, opened.snapshot() as store:
            entries = export_native(store, store.scopes())["entries"]
        shared = {entry["time_us"] for entry in entries if entry["dims"]["M"] < 30}
        assert len(shared) == 1
        [time_us] = shared
        assert len(entries) == 29 + time_us - 50 + 1
        seen.add(time_us)
    assert writer.poll() is None
    assert len(seen) > 5  # the writer did write meanwhile
