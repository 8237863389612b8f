"""The stream of a job's events, without a job that runs."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from dataclasses import replace

from tilewise.api.routes import jobs
from tilewise.db.jobs import State

JOB = {"kernel": "vector_add", "shapes": [{"N": 100}], "device": "model:Ascend910B4"}


def test_a_stream_reads_the_database_once_per_interval_and_tells_changes_only(client, token_of, monkeypatch):
    monkeypatch.setattr(jobs, "_POLL_SECONDS", 0.05)
    number = client.post("/v1/jobs", json=JOB, headers=token_of("submit")).json()["id"]
    service, moments = client.app.state.service, []
    read = service.jobs.get

    def noted(job):
        moments.append(time.monotonic())
        return replace(read(job), state=State.QUEUED if len(moments) < 4 else State.CANCELLED)

    monkeypatch.setattr(service.jobs, "get", noted)
    text = client.get(f"/v1/jobs/{number}/events").text
    assert text.count("event: job\n") == 2
    assert min(after - before for before, after in itertools.pairwise(moments)) >= 0.05
    assert len(service.limits.anonymous_streams) == 0


def test_streams_of_one_address_and_of_strangers_leave_some_for_token_holders(client, token_of, problem_of):
    token = token_of("submit")
    job = client.post("/v1/jobs", json=JOB, headers=token).json()["id"]
    client.delete(f"/v1/jobs/{job}", headers=token)
    service, path = client.app.state.service, f"/v1/jobs/{job}/events"
    with ExitStack() as held:
        for _ in range(20):
            assert client.get(path).status_code == 200
            held.enter_context(service.limits.anonymous_streams.one("testclient"))
        response = client.get(path)
        assert "event streams of yours" in problem_of(response, 429)["detail"]
        assert int(response.headers["retry-after"]) > 0
        assert client.get(path, headers=token).status_code == 200
        for stranger in range(130):
            held.enter_context(service.limits.anonymous_streams.one(stranger))
        assert (
            "150 event streams" in problem_of(client.get(path, headers={"authorization": "Bearer no"}), 429)["detail"]
        )
        assert client.get(path, headers=token).status_code == 200
    assert client.get(path).status_code == 200
