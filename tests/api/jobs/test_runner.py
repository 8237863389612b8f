"""The thread that starts jobs survives what it meets."""

import logging
from types import SimpleNamespace

import pytest

from tilewise.api.jobs.processes import identity
from tilewise.api.jobs.runner import Runner
from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError


@pytest.mark.parametrize(
    ("error", "line"), [(StoreError("it is locked"), "job runner: it is locked"), (KeyError("x"), "job runner")]
)
def test_an_error_of_a_turn_is_logged_and_ends_nothing(error, line, caplog):
    def turn():
        raise error

    runner = Runner("sqlite://", None, lambda: (), None)
    with caplog.at_level(logging.ERROR):
        runner._attempt(turn)
    [record] = caplog.records
    assert record.getMessage() == line
    assert (record.exc_info is None) == isinstance(error, StoreError)


@pytest.mark.parametrize(
    ("beats", "moments", "lost"),
    [
        ([3, 3], [0.0, 60.0], False),
        ([3, 3], [0.0, 60.1], True),
        ([3, 4], [0.0, 100.0], False),  # a sign of life meanwhile
        ([3, 4, 4], [0.0, 100.0, 160.0], False),
        ([3, 4, 4], [0.0, 100.0, 160.5], True),
        ([0], [1000.0], False),  # the first look tells nothing
    ],
)
def test_a_job_of_another_machine_is_lost_after_a_minute_without_a_heartbeat(beats, moments, lost, monkeypatch):
    runner, clock = Runner("sqlite://", None, lambda: (), None), iter(moments)
    monkeypatch.setattr("tilewise.api.jobs.runner.time", SimpleNamespace(monotonic=lambda: at))
    found = None
    for beat in beats:
        at = next(clock)
        found = runner._is_lost(SimpleNamespace(id=7, owner="elsewhere/boot/12/345", beats=beat))
    assert found is lost


def test_a_job_of_this_machine_is_lost_as_soon_as_its_process_has_ended():
    runner = Runner("sqlite://", None, lambda: (), None)
    host, _, started = identity().rpartition("/")
    assert not runner._is_lost(SimpleNamespace(id=7, owner=identity(), beats=0))
    assert runner._is_lost(SimpleNamespace(id=7, owner=f"{host}/{int(started) + 1}", beats=0))


@pytest.fixture
def jobs():
    with open_store("sqlite://") as store:
        yield Jobs(store.database)


def submitted(jobs):
    return jobs.submit(Request("vector_add", "a1", [{"N": 100}], "float32", "model:Ascend910B4"))[0]


def test_a_process_that_ends_before_it_claims_its_job_uses_up_an_attempt(jobs):
    runner, job = Runner("sqlite://", jobs, lambda: (), None), submitted(jobs)
    for attempt in range(1, 10):
        runner._count_false_start(jobs.get(job.id), "exit code 1")
        now = jobs.get(job.id)
        assert (now.state, now.attempts) == (State.QUEUED, attempt)
    runner._count_false_start(now, "exit code 1")
    ended = jobs.get(job.id)
    assert (ended.state, ended.reason) == (State.FAILED, "started 10 times and never finished: exit code 1")


def test_a_process_that_had_claimed_its_job_is_no_false_start(jobs):
    runner, job = Runner("sqlite://", jobs, lambda: (), None), submitted(jobs)
    assert jobs.claim(job, "another")
    runner._count_false_start(job, "exit code 1")
    assert (jobs.get(job.id).owner, jobs.get(job.id).attempts) == ("another", 1)
    assert jobs.take_back(jobs.get(job.id), "gone")
    runner._count_false_start(job, "exit code 1")  # it was started again meanwhile
    assert jobs.get(job.id).attempts == 1


def test_devices_of_live_jobs_are_busy_and_lost_jobs_wait_again(jobs):
    runner, job = Runner("sqlite://", jobs, lambda: (), None), submitted(jobs)
    assert runner._take_back_lost() == set()
    assert jobs.claim(job, identity())
    assert runner._take_back_lost() == {"model:Ascend910B4"}
    assert jobs.get(job.id).state is State.RUNNING
    host, _, started = identity().rpartition("/")
    assert jobs.take_back(jobs.get(job.id), "moved")
    assert jobs.claim(jobs.get(job.id), f"{host}/{int(started) + 1}")
    assert runner._take_back_lost() == set()
    assert jobs.get(job.id).state is State.QUEUED
