"""A short run of `tilewise bench soak`: all kinds of requests at once, while processes are killed."""

from __future__ import annotations

from tilewise.benchmarks.service.soak import soak


def test_kills_lose_no_write_no_job_and_give_no_wrong_answer():
    told: list[str] = []
    body = soak(seconds=9.0, clients=4, kills=2, jobs=1, url=None, seed=2, say=told.append)
    assert body["faults"] == []
    assert sum(body["kills"].values()) == 2
    assert {"look_up", "write", "submit"} <= body["requests"].keys()
