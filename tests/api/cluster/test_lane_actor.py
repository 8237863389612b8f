"""The actor of one device, without Ray."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import nullcontext

import pytest
from places import HELPERS

from tilewise.api.cluster import lane_actor
from tilewise.api.cluster.lane_actor import LaneActor, Report
from tilewise.api.jobs.processes import identity_of, new_token, seen_alive
from tilewise.benchmarks.fleet.chips import DTYPE, KERNEL, chips, problems
from tilewise.db.jobs import Jobs, Request
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Lane
from tilewise.errors import InUse, Unavailable
from tilewise.kernels import registry
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.workers.farm import VARIABLE, Order, from_farm

LANE = Lane("cuda:1", "H200", "measured", "1")


@pytest.fixture
def heirlooms():
    """The lanes on which jobs run that other processes started."""
    return set()


@pytest.fixture
def calls(monkeypatch, heirlooms):
    """The calls that the runners of actors get."""
    made = []

    class Runner:
        def __init__(self, url, jobs, lanes, executor, workers):
            made.append(lanes())

        def __getattr__(self, name):
            return lambda: made.append(name)

        def has_heirloom(self, lane):
            return lane in heirlooms

    monkeypatch.setattr(lane_actor, "Runner", Runner)
    monkeypatch.setattr(lane_actor, "_REST_SECONDS", 0.01)
    monkeypatch.setattr(lane_actor, "_LOOK_SECONDS", 0.01)
    return made


@pytest.mark.parametrize(
    ("error", "why"),
    [(Unavailable("no lane is free"), "no lane is free"), (KeyError("x"), "internal error: KeyError: 'x'")],
)
def test_an_actor_tells_why_it_waits_and_tries_again_until_a_lane_is_free(store_url, monkeypatch, calls, error, why):
    free = []

    def taken(resource):
        assert resource == "tilewise:H200:1"
        if not free:
            raise error
        return nullcontext(LANE)

    monkeypatch.setattr(lane_actor, "taken", taken)
    actor = LaneActor(store_url, "tilewise:H200:1", [])
    until(lambda: actor.report().why == why)
    assert actor.report() == Report(socket.gethostname(), os.getpid(), "", why)
    free.append(True)
    until(lambda: actor.report().lane)
    assert actor.report() == Report(socket.gethostname(), os.getpid(), "cuda:1", "")
    actor.drain()
    assert calls == [[LANE], "start", "drain", "stop"]


def test_an_actor_knows_the_kernels_that_it_is_given_from_its_start(store_url, monkeypatch, calls):
    def taken(resource):
        raise Unavailable("no lane is free")

    monkeypatch.setattr(lane_actor, "taken", taken)
    monkeypatch.setattr(registry, "_own", {})
    kernels = [f"{HELPERS / 'cube_kernels.py'}:{name}" for name in ("BATCHED", "TRANSPOSED_A")]
    actor = LaneActor(store_url, "tilewise:H200:1", kernels)
    assert [registry.place(name) for name in ("batched", "transposed_a")] == kernels
    with pytest.raises(Unavailable, match=r"^(no lane is free|it is starting)$"):
        actor.lend("mine")
    actor.drain()


def test_the_jobs_of_an_actor_find_its_socket_of_the_farm_and_the_actor_says_why_it_made_nothing(
    store_url, monkeypatch, calls, heirlooms
):
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr(lane_actor, "taken", lambda resource: nullcontext(LANE))

    def fetched(farm, order):
        if order.key == "faulty":
            raise Unavailable("no node of the cluster has a CPU")
        return f"{farm} {order.key}".encode()

    monkeypatch.setattr(lane_actor, "fetched", fetched)
    actor = LaneActor(store_url, "tilewise:H200:1", [], "the farm's")
    until(lambda: actor.report().lane)
    assert from_farm(Order("a", "c", "m:f", ())) == b"the farm's a"
    assert from_farm(Order("faulty", "c", "m:f", ())) is None
    assert actor.report().compiles_here == "Unavailable: no node of the cluster has a CPU"
    assert from_farm(Order("a", "c", "m:f", ())) == b"the farm's a"
    assert actor.report().compiles_here == ""
    heirlooms.add("cuda:1")
    assert actor.report().compiles_here == "its job began under an actor that has ended"
    actor.drain()


def test_a_drained_actor_has_the_job_of_an_earlier_one_give_its_lease_back(store_url, monkeypatch, calls, tmp_path):
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(lane_actor, "taken", lambda resource: nullcontext(LANE))
    with open_store(store_url, create=True) as store:
        jobs, owners, processes = Jobs(store.database), [], []
        for seed, lane in enumerate((LANE.id, "cuda:0")):
            processes.append(subprocess.Popen(["sleep", "60"]))
            owners.append(identity_of(processes[-1].pid, new_token()))
            job, _ = jobs.submit(Request("vector_add", "a1", [{"N": 100}], "float32", "H200", seed=seed))
            jobs.claim(job, owners[-1], lane=lane)
        with seen_alive(owners[0]), seen_alive(owners[1]):
            actor = LaneActor(store_url, "tilewise:H200:1", [])
            until(lambda: actor.report().lane)
            actor.drain()
        assert processes[0].wait(30) == -signal.SIGTERM
        assert processes[1].poll() is None
        processes[1].kill()
        processes[1].wait()


def test_a_lane_is_lent_while_it_has_no_job_and_only_to_its_borrower(store_url, monkeypatch, tmp_path):
    [chip, *_] = chips(tmp_path, 1, noise=0.0, seconds=0.0, seed=0)
    lane = Lane(chip.id, chip.planted.name, "measured", chip.planted.toolchain)
    monkeypatch.setattr(lane_actor, "taken", lambda resource: nullcontext(lane))
    monkeypatch.setattr(lane_actor, "_LOOK_SECONDS", 0.01)
    actor = LaneActor(store_url, "tilewise:H200:1", [])
    until(lambda: actor.report().lane)
    about = actor.lend("mine")
    assert (about.id, about.host, about.toolchain) == (chip.id, socket.gethostname(), chip.planted.toolchain)
    with pytest.raises(InUse, match="has a job, or is lent already"):
        actor.lend("another's")
    with pytest.raises(Unavailable, match="has ended"):
        actor.keep_lent("another's")
    spec = registry.load(KERNEL)
    [(_, dims), _] = problems(2)
    problem = make_problem(spec, dims, DTYPE)
    config = spec.default(problem, about.target)
    assert len(list(actor.evaluate_lent("mine", 1, registry.located(spec).origin, problem, [config] * 3))) == 3
    assert actor.ask_lent("mine", "verify", registry.located(spec).origin, problem, config).agreed
    with pytest.raises(Unavailable, match="has ended"):
        actor.beat_lent("another's", 3, None)
    with pytest.raises(Unavailable, match="has ended"):
        actor.ask_lent("another's", "verify", registry.located(spec).origin, problem, config)
    actor.beat_lent("mine", 2, 25.0)
    assert list(actor.evaluate_lent("mine", 1, registry.located(spec).origin, problem, [config])) == []
    actor.give_back("mine")
    with pytest.raises(Unavailable):
        actor.keep_lent("mine")
    actor.lend("another's")
    actor.drain()
    with pytest.raises(Unavailable):
        actor.lend("mine")
    with pytest.raises(Unavailable, match=r"^the loan has ended$"):
        actor.keep_lent("another's")


def until(condition):
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, "it took too long"
        time.sleep(0.005)
