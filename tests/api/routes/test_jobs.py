"""The stream of a job's events, without a job that runs."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewise.api.routes import jobs
from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError

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


@pytest.fixture
def job():
    with open_store("sqlite://") as store:
        yield Jobs(store.database).submit(Request("vector_add", "a1", [{"N": 100}], "float32", "cuda"))[0]


def told(job, monkeypatch, *later, seconds=0.0, quiet=0.0):
    """Return the events of a job that is read again as `later` says; each look is `seconds` after the one before."""
    moments, answers = itertools.count(), iter(later)
    loop = SimpleNamespace(time=lambda: clock[0])
    clock = [0.0]

    async def pause(length):
        clock[0] = seconds * (next(moments) + 1)

    async def run(function, *arguments):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def collect():
        service = SimpleNamespace(run=run, jobs=SimpleNamespace(get=None), stopping=False)
        with monkeypatch.context() as patch:
            patch.setattr(jobs, "_QUIET_SECONDS", quiet)
            patch.setattr(jobs, "asyncio", SimpleNamespace(get_running_loop=lambda: loop, sleep=pause))
            return [event async for event in jobs._stream(service, job)]

    return asyncio.run(collect())


def test_a_stream_ends_with_the_job(job, monkeypatch):
    running, done = replace(job, state=State.RUNNING), replace(job, state=State.DONE)
    events = told(job, monkeypatch, running, running, done, quiet=1.0)
    assert [json.loads(event.split("data: ")[1])["state"] for event in events] == ["queued", "running", "done"]
    assert all(event.startswith("event: job\ndata: {") and event.endswith("}\n\n") for event in events)
    assert len(told(done, monkeypatch)) == 1


@pytest.mark.parametrize(("quiet", "comments"), [(5.0, 1), (3.0, 2), (2.0, 3), (1.0, 4), (0.9, 9), (100.0, 0)])
def test_a_stream_without_news_says_that_it_is_still_here(job, monkeypatch, quiet, comments):
    """Looks come a second apart; a comment, too, begins a new time of quiet."""
    events = told(job, monkeypatch, *[job] * 9, replace(job, state=State.DONE), seconds=1.0, quiet=quiet)
    assert events[1:-1] == [": still here\n\n"] * comments


def test_a_stream_goes_on_while_the_database_is_away(job, monkeypatch):
    away = StoreError("it is away")
    events = told(job, monkeypatch, away, away, replace(job, state=State.DONE), quiet=1.0)
    assert [event.partition("\n")[0] for event in events] == ["event: job"] * 2


def test_a_stream_ends_when_the_server_stops(job, monkeypatch):
    async def first():
        return [event async for event in jobs._stream(SimpleNamespace(stopping=True), job)]

    assert len(asyncio.run(first())) == 1
