"""The stream of a job's events, without a job that runs."""

from __future__ import annotations

import itertools
import time
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
    assert service.streams == 0
