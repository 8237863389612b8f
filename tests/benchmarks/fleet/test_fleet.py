"""Small runs of `tilewise bench fleet`, with real servers, workers and kills."""

from __future__ import annotations

import pytest

from tilewise.benchmarks.fleet.fleet import bench_fleet

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
def test_a_database_server_that_is_killed_and_comes_back_loses_no_job_and_no_trial():
    body = bench_fleet(count=14, kills=7, url=None, own_postgresql=True, **SMALL | {"devices": 4})
    assert body["faults"] == []
    assert body["kills"]["database"] == 1
