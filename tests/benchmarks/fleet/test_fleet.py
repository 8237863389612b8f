"""Small runs of `tilewise bench fleet`, with real servers, workers and kills."""

from __future__ import annotations

import pytest

from tilewise.benchmarks.fleet.fleet import bench_fleet
from tilewise.benchmarks.fleet.ray_speed import bench_ray_speed

SMALL = {"devices": 2, "trials": 12, "seconds": 0.05, "noise": 0.002, "seed": 0, "say": str}


@pytest.mark.full
def test_kills_on_one_host_lose_no_job_and_no_trial():
    body = bench_fleet(count=4, kills=3, url=None, **SMALL)
    assert body["faults"] == []
    assert body["kills"] == {"job": 1, "server": 1, "worker": 1}
    assert body["trials"] >= 4 * 12


@pytest.mark.full
def test_kills_and_pauses_on_several_hosts_lose_no_job_and_no_trial(postgres_url):
    body = bench_fleet(count=12, kills=6, url=postgres_url, **SMALL | {"devices": 4})
    assert body["faults"] == []
    assert sum(body["kills"].values()) == 6
    assert body["owners_stopped"]["rows"] == 0


@pytest.mark.full
def test_kills_of_nodes_actors_and_the_head_lose_no_job_and_no_trial(postgres_url):
    pytest.importorskip("ray")
    body = bench_fleet(count=12, kills=7, url=postgres_url, engine="ray", **SMALL)
    late = [fault for fault in body["faults"] if "did not run for" in fault]  # depends on what else the machine does
    assert [fault for fault in body["faults"] if fault not in late] == []
    assert (body["kills"]["head"], body["kills"]["worker"]) == (1, 1)
    assert body["jobs_on_another_toolchain"] == 0


@pytest.mark.full
def test_each_raylet_runs_a_job_at_the_same_time():
    pytest.importorskip("ray")
    body = bench_ray_speed(devices=2, shapes=1, trials=10, seconds=0.5, url=None, say=str)
    one, two = body["rows"]
    assert (one["nodes"], two["nodes"], two["ended"]) == (1, 2, ["done"] * 2)
    assert two["trials"] == 2 * one["trials"]


@pytest.mark.full
def test_a_database_server_that_is_killed_and_comes_back_loses_no_job_and_no_trial():
    body = bench_fleet(count=14, kills=7, url=None, own_postgresql=True, **SMALL | {"devices": 4})
    assert body["faults"] == []
    assert body["kills"]["database"] == 1
