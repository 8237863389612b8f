"""A short run of `tilewise bench soak`: all kinds of requests at once, while processes are killed."""

from __future__ import annotations

import pytest

from tilewise.benchmarks.service.soak import soak


def test_kills_lose_no_write_no_job_and_give_no_wrong_answer():
    told: list[str] = []
    body = soak(seconds=5.0, clients=4, kills=1, jobs=1, url=None, seed=2, say=told.append)
    assert body["faults"] == []
    assert sum(body["kills"].values()) == 1
    assert {"look_up", "write", "submit"} <= body["requests"].keys()


@pytest.mark.full
def test_two_minutes_of_everything_break_no_promise_and_leak_no_memory():
    body = soak(seconds=120.0, clients=16, kills=10, jobs=8, url=None, seed=3, say=str)
    assert body["faults"] == []
    assert sum(body["kills"].values()) == 10
    assert body["server_memory_mb"]["growth_of_last_life"] <= 1.1
