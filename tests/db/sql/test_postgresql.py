"""Tests of faults that only PostgreSQL has: broken connections, and locks held by another session."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, make_url, select, text

from tilewise.db.jobs import Jobs, LeaseLost, Request
from tilewise.db.sql.models import scopes
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError


@pytest.fixture
def other(postgres_url):
    """Yield a connection of another session."""
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def with_option(url: str, option: str) -> str:
    parsed = make_url(url)
    return parsed.update_query_dict({"options": f"{parsed.query['options']} -c{option}"}).render_as_string(False)


def test_a_store_goes_on_after_its_connections_broke(postgres_url, other, make_scope, make_trial):
    """Connections break like this when the server restarts."""
    with open_store(postgres_url) as store:
        others = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        for kept in range(3):
            other.execute(others)
            assert len(store.trials(make_scope())) == kept
            other.execute(others)
            store.record(make_scope(), [make_trial()])


def test_a_lock_kept_too_long_is_reported_and_nothing_written(postgres_url, other, make_scope, make_trial):
    with open_store(with_option(postgres_url, "lock_timeout=200")) as store:
        store.record(make_scope(), [first := make_trial()])
        other.execute(select(scopes.c.id).with_for_update())
        with pytest.raises(StoreError, match="stayed locked by another process for too long; wait until"):
            store.record(make_scope(), [make_trial()])
        assert store.trials(make_scope()) == [first]  # readers do not wait
        other.rollback()
        store.record(make_scope(), [second := make_trial()])
        assert store.trials(make_scope()) == [first, second]


def test_a_process_that_is_paused_in_a_write_does_not_hold_its_job_for_ever(postgres_url, make_scope, make_trial):
    impatient = with_option(postgres_url, "idle_in_transaction_session_timeout=1000")
    with open_store(impatient) as paused, open_store(postgres_url) as store:
        jobs = Jobs(store.database)
        job, _ = jobs.submit(Request("row_reduce", "a1", [{"M": 8, "N": 8}], "float32", "model:Ascend910B4"))
        mine = jobs.store(paused, jobs.claim(job, "me"))

        def pause_in_a_write():
            with mine.database.write() as connection:
                assert jobs.take_back(jobs.get(job.id), "silent")  # waits until the pause has ended the write
                connection.execute(text("SELECT 1"))

        with pytest.raises(StoreError):
            pause_in_a_write()
        with pytest.raises(LeaseLost):
            mine.record(make_scope(), [make_trial()])
        assert store.trials(make_scope()) == []


def test_tilewise_of_any_version_migrates_alone(postgres_url, other):
    """The lock's number must stay the same, or two versions could migrate one database at once."""
    other.execute(text("SELECT pg_advisory_lock(7450193811)"))
    with pytest.raises(StoreError, match="stayed locked by another process for too long"):
        open_store(with_option(postgres_url, "lock_timeout=200"))
    other.execute(text("SELECT pg_advisory_unlock(7450193811)"))
    open_store(postgres_url).close()


def test_a_store_that_only_reads_keeps_no_transaction_open(postgres_url, other, make_scope, make_trial):
    """PostgreSQL would keep replaced rows for as long as it is."""
    with open_store(postgres_url) as store:
        store.record(make_scope(), [make_trial()])
        assert store.lookup(make_scope().question) is not None
        idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' AND pid <> pg_backend_pid()"
        assert other.execute(text(idle)).scalar() == 0


def test_waiting_for_a_lock_is_limited(postgres_url):
    with open_store(postgres_url) as store, store._database.engine.connect() as connection:
        assert connection.execute(text("SHOW lock_timeout")).scalar() == "30s"
        assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar() == "30s"


def test_writers_that_wait_for_each_other_are_told_to_try_again(postgres_url, other, make_scope, make_trial):
    one, two = make_scope(), make_scope(dtype="float16")
    evidence = [(two, [make_trial()]), (one, [make_trial()])]
    locked = select(scopes.c.id).with_for_update()
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    other.execute(text("SET deadlock_timeout = '1h'"))  # the store's session detects the deadlock, and is aborted
    with open_store(with_option(postgres_url, "deadlock_timeout=3s")) as store, ThreadPoolExecutor(1) as pool:
        store.record(one, [make_trial()])
        store.record(two, [make_trial()])
        other.execute(locked.where(scopes.c.key == one.key))
        merging = pool.submit(store.merge, evidence)
        while not other.execute(waiting).scalar():
            time.sleep(0.01)
        other.execute(locked.where(scopes.c.key == two.key))
        with pytest.raises(StoreError, match="wrote to the same problems in another order; nothing was written: try"):
            merging.result(timeout=30)
        other.rollback()
        assert len(store.trials(two)) == 1
        assert store.merge(evidence).added == 2
