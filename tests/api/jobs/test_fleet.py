"""Which workers are alive, which can run a job, and what is said of a job that waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tilewise.api.jobs import liveness
from tilewise.api.jobs.fleet import Fleet, runnable_on, why_it_waits
from tilewise.db.jobs import Job, State
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Lane, Worker, Workers

LANES = [Lane(f"cuda:{number}", "NVIDIA H200", "measured", "cuda 12") for number in (0, 1)]
ALPHA = Worker(1, "alpha/1/a", "alpha", "0.1.0", LANES, ["softmax"], 0, False, datetime.now(UTC))
BETA = replace(ALPHA, id=2, host="beta", owner="beta/1/b", lanes=[Lane("npu", "Ascend910B4", "measured", "CANN 8.5")])
JOB = Job(7, "softmax", [{"N": 8}], "float32", "cuda", None, None, "guided", 0, 0, State.QUEUED, "")


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, ["alpha cuda:0", "alpha cuda:1"]),
        ({"device": "cuda:1"}, ["alpha cuda:1"]),
        ({"device": "Ascend910B4"}, ["beta npu"]),
        ({"device": "Ascend910B4", "toolchain": "CANN 8.5"}, ["beta npu"]),
        ({"device": "Ascend910B4", "toolchain": "CANN 9"}, []),
        ({"kernel": "mine"}, []),
    ],
)
def test_a_job_is_runnable_where_device_toolchain_and_kernel_are(changes, where):
    assert runnable_on(replace(JOB, **changes), [ALPHA, BETA]) == where


def test_a_worker_that_is_being_stopped_can_run_nothing_more():
    stopping = replace(ALPHA, draining=True)
    assert runnable_on(JOB, [stopping]) == []
    assert why_it_waits(JOB, [stopping], []) == "the workers that could run it are being stopped"


@pytest.mark.parametrize(
    ("changes", "live", "said"),
    [
        ({}, [], "no worker is alive: start tilewise worker"),
        ({"kernel": "mine"}, [ALPHA], "none of 1 live workers knows the kernel mine"),
        ({"device": "npu:3"}, [ALPHA, BETA], "no live worker has npu:3; they have cuda:0, cuda:1, npu"),
        (
            {"device": "npu", "toolchain": "CANN 9"},
            [ALPHA, BETA],
            "no live worker has npu with the toolchain 'CANN 9'; they have CANN 8.5",
        ),
        ({}, [ALPHA, BETA], "it is about to start, or another program holds the device"),
    ],
)
def test_it_is_said_why_a_job_waits(changes, live, said):
    assert why_it_waits(replace(JOB, **changes), live, []).startswith(said)


def test_a_job_waits_for_the_devices_of_a_server_that_has_just_started():
    starting = why_it_waits(JOB, [], [], starting=True)
    assert starting == "it is about to start: this server is registering its devices"
    assert why_it_waits(replace(JOB, kernel="mine"), [ALPHA], [], starting=True).startswith("none of 1 live workers")


def test_a_job_waits_while_all_devices_that_could_run_it_are_busy():
    running = [replace(JOB, id=number, state=State.RUNNING, host="alpha", lane=f"cuda:{number}") for number in (0, 1)]
    assert why_it_waits(JOB, [ALPHA], running) == "all of 2 devices that could run it are busy"
    assert "about to start" in why_it_waits(JOB, [ALPHA], running[:1])


def test_a_worker_without_a_sign_of_life_for_a_minute_is_lost_and_removed(monkeypatch):
    monkeypatch.setattr(liveness, "time", SimpleNamespace(monotonic=lambda: now))
    with open_store("sqlite://") as store:
        workers = Workers(store.database)
        silent, living = (workers.register(f"{host}/1/x", host, "0.1.0", LANES, []) for host in ("alpha", "beta"))
        fleet = Fleet(workers)
        now = 0.0
        assert [worker.id for worker in fleet.live()] == [silent, living]
        now = 59.0
        workers.beat(living)
        assert fleet.sweep() == []
        now = 61.0
        assert [worker.id for worker in fleet.live()] == [living]
        assert [worker.id for worker in fleet.sweep()] == [silent]
        assert [worker.id for worker in workers.all()] == [living]
