"""The counts of a fleet: chips by what they do, jobs by state, and the trials that are left."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewise.api.jobs import liveness
from tilewise.api.jobs.fleet import Fleet
from tilewise.api.jobs.overview import USUAL_TRIALS, Overview, _left, overview, trials_left
from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Lane, Workers
from tilewise.tuner.tuning.loop import DEFAULT_TRIALS

REQUEST = Request("softmax", "a1", [{"N": 8}], "float32", "cuda", trials=40)
LANES = [Lane(f"cuda:{number}", "NVIDIA H200", "measured", "cuda 12") for number in (0, 1)]


@pytest.fixture
def database():
    with open_store("sqlite://") as store:
        yield store.database


def test_chips_are_busy_idle_drained_or_lost(database, monkeypatch):
    monkeypatch.setattr(liveness, "time", SimpleNamespace(monotonic=lambda: now))
    workers, jobs = Workers(database), Jobs(database)
    fleet, now = Fleet(workers), 0.0
    silent, stopping, working = (
        workers.register(f"{host}/1/x", host, "0.1.0", LANES, []) for host in ("silent", "stopping", "working")
    )
    job = jobs.submit(REQUEST)[0]
    jobs.claim(job, "working/2/y", host="working", lane="cuda:1")
    overview(jobs, fleet)
    now = 61.0
    workers.beat(stopping, draining=True)
    workers.beat(working)
    seen = overview(jobs, fleet)
    assert {(chip.host, chip.id): (chip.state, chip.job) for chip in seen.chips} == {
        ("silent", "cuda:0"): ("lost", None),
        ("silent", "cuda:1"): ("lost", None),
        ("stopping", "cuda:0"): ("drained", None),
        ("stopping", "cuda:1"): ("drained", None),
        ("working", "cuda:0"): ("idle", None),
        ("working", "cuda:1"): ("busy", job.id),
    }
    assert seen.by_state == {"busy": 1, "idle": 1, "drained": 2, "lost": 2}
    assert silent in {worker.id for worker in fleet.known()}


def test_jobs_are_counted_by_state_and_the_queue_by_device(database):
    jobs = Jobs(database)
    for seed, device in enumerate(("cuda", "cuda", "Ascend910B4")):
        jobs.submit(replace(REQUEST, device=device, seed=seed))
    jobs.cancel(jobs.submit(replace(REQUEST, seed=9))[0].id)
    seen = overview(jobs, Fleet(Workers(database)))
    assert seen == Overview(
        [], {"queued": 3, "running": 0, "done": 0, "failed": 0, "cancelled": 1}, {"cuda": 2, "Ascend910B4": 1}
    )


def test_the_trials_left_are_those_of_all_shapes_less_those_made(database):
    jobs = Jobs(database)
    assert trials_left(jobs) == 0
    running = jobs.submit(replace(REQUEST, shapes=[{"N": 8}, {"N": 9}, {"N": 10}]))[0]
    lease = jobs.claim(running, "owner")
    assert trials_left(jobs) == 3 * 40
    jobs.beat(lease, {"shapes_done": 1, "shapes": 3, "of": 30, "trials": 12})
    jobs.submit(replace(REQUEST, trials=None))
    assert trials_left(jobs) == 2 * 30 - 12 + USUAL_TRIALS
    jobs.finish(lease, State.DONE, "", {"shapes_done": 3, "shapes": 3, "of": 30, "trials": 30})
    assert trials_left(jobs) == USUAL_TRIALS == DEFAULT_TRIALS


@pytest.mark.parametrize(
    ("trials", "progress", "left"),
    [
        (40, {}, 2 * 40),
        (None, {}, 2 * USUAL_TRIALS),
        (40, {"of": 0}, 2 * 40),
        (40, {"of": 1}, 2),
        (40, {"trials": 80}, 0),
        (40, {"trials": 81}, 0),
        (40, {"trials": 79}, 1),
        (40, {"shapes": 5}, 5 * 40),
        (40, {"shapes_done": 1}, 40),
        (40, {"shapes": 3, "shapes_done": 3, "trials": 0}, 0),
        (40, {"shapes": 0, "trials": -5}, 0),
    ],
)
def test_the_trials_left_of_a_job_follow_from_its_progress(trials, progress, left):
    job = SimpleNamespace(trials=trials, shapes=[{"N": 8}, {"N": 9}], progress=progress)
    assert _left(job) == left
