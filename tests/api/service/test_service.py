"""Work of the service between requests: writes take turns, and indexes are built before anybody needs them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from tilewise.api.app import create_app
from tilewise.api.service import service as services
from tilewise.api.service.service import Options, Service
from tilewise.api.service.slow_lookups import SlowLookups
from tilewise.db.jobs import Jobs, State
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError

JOB = {"kernel": "vector_add", "device": "model:Ascend910B4"}


def test_writes_at_once_wait_for_each_other_and_not_for_the_lock(client, admin, store_url, monkeypatch):
    """The store's lock timeout is 0 here: if two writers ran at once, one of them would fail."""
    service = client.app.state.service
    with open_store(f"{store_url}?timeout=0") as hasty, ThreadPoolExecutor(16) as pool:
        monkeypatch.setattr(service, "jobs_writer", Jobs(hasty.database))
        bodies = [JOB | {"shapes": [{"N": n}]} for n in range(1, 49)]
        answers = pool.map(lambda body: client.post("/v1/jobs", json=body, headers=admin).status_code, bodies)
        assert set(answers) == {201}


def test_a_write_whose_turn_does_not_come_is_asked_to_come_again(client, admin, problem_of, monkeypatch):
    monkeypatch.setattr(services, "_TURN_SECONDS", 0.05)
    writing = client.app.state.service._writing
    client.portal.call(writing.acquire)
    response = client.post("/v1/jobs", json=JOB | {"shapes": [{"N": 1}]}, headers=admin)
    assert "other requests were served first" in problem_of(response, 503)["detail"]
    assert int(response.headers["retry-after"]) > 0
    client.portal.call(writing.release)
    assert client.post("/v1/jobs", json=JOB | {"shapes": [{"N": 1}]}, headers=admin).status_code == 201


def test_the_shapes_are_indexed_after_the_start_if_there_are_any(store_url, tune, monkeypatch):
    prepared = threading.Event()

    async def prepare(lookups):
        prepared.set()

    monkeypatch.setattr(services, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(SlowLookups, "prepare", prepare)
    with TestClient(create_app(store_url, Options(run_jobs=False))) as client:
        client.portal.call(asyncio.wait_for, client.app.state.service._preparing, 60)
        assert not prepared.is_set()
    tune()
    with TestClient(create_app(store_url, Options(run_jobs=False))):
        assert prepared.wait(60)


def test_of_many_misses_at_once_a_hundred_are_heeded(store_url, monkeypatch):
    heeded = []

    async def tune_for_ever(service, question, source_hash):
        heeded.append(question)
        await asyncio.sleep(3600)

    async def miss():
        service = Service(store_url, Options())
        for number in range(150):
            service.heed_miss(number, "a1")
        await asyncio.sleep(0)

    monkeypatch.setattr(Service, "_tune_miss", tune_for_ever)
    asyncio.run(miss())
    assert heeded == list(range(100))


def test_work_in_the_background_that_fails_is_logged_and_ends_nothing(store_url, monkeypatch, caplog):
    async def fail(service, *call):
        raise StoreError("it is locked")

    async def work():
        service = Service(store_url, Options())
        service.store = SimpleNamespace(families=list)
        await service._prepare()
        await service._tune_miss(SimpleNamespace(device="H200"), "a1")

    monkeypatch.setattr(services, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(Service, "read", fail)
    monkeypatch.setattr(Service, "run", fail)
    asyncio.run(work())
    assert caplog.messages == [
        "the shape indexes are not ready: it is locked",
        "cannot submit a job for a miss: it is locked",
    ]


@pytest.mark.parametrize(
    ("size", "places"),
    [(0, "small_imports"), (1 << 20, "small_imports"), ((1 << 20) + 1, "imports"), (None, "imports")],
)
def test_an_import_has_a_place_among_those_of_its_size(store_url, size, places):
    async def take():
        service = Service(store_url, Options())
        with service.import_place(size):
            return {name: len(getattr(service.limits, name)) for name in ("small_imports", "imports")}

    held = asyncio.run(take())
    assert held == {"small_imports": 0, "imports": 0} | {places: 1}


@pytest.mark.parametrize(("queued", "new", "woken"), [(0, True, 1), (0, False, 0), (99, True, 1), (100, True, 0)])
def test_a_miss_is_tuned_after_all_that_users_ask_for_unless_a_hundred_jobs_wait(
    store_url, monkeypatch, queued, new, woken
):
    submitted, awake = [], []

    def submit(request, *, priority):
        submitted.append((request, priority))
        return None, new

    async def work():
        service = Service(store_url, Options())
        waiting = [SimpleNamespace(state=State.QUEUED)] * queued + [SimpleNamespace(state=State.DONE)] * 7
        service.jobs = SimpleNamespace(page=lambda *, most: waiting if most == 100 else None)
        service.jobs_writer = SimpleNamespace(submit=submit)
        monkeypatch.setattr(service, "wake_runner", lambda: awake.append(True))
        service._submit_unless_many("a request")

    asyncio.run(work())
    assert submitted == [("a request", -100)] * (queued < 100)
    assert len(awake) == woken


def test_a_service_that_ends_ends_all_that_it_has_begun(store_url, tune, monkeypatch):
    tune()
    done = []

    def noted(what, name):
        end = getattr(what, name)
        label = f"{type(what).__name__}.{name}"
        if asyncio.iscoroutinefunction(end):

            async def act():
                done.append(label)
                await end()
        else:

            def act():
                done.append(label)
                end()

        monkeypatch.setattr(what, name, act)

    with TestClient(create_app(store_url, Options())) as client:
        service = client.app.state.service
        runner = service._runner
        for what in (service._siblings, service.slow_lookups, service._imports, service.answer_cache):
            noted(what, "close")
        noted(runner, "stop")
        noted(service._checker, "shutdown")
        noted(service.store, "close")
        noted(service.writer, "close")
        assert not service.stopping
    assert done == [
        "Siblings.close",
        "Runner.stop",
        "SlowLookups.close",
        f"{type(service._imports).__name__}.close",
        "ThreadPoolExecutor.shutdown",
        "AnswerCache.close",
        "SqlStore.close",
        "SqlStore.close",
    ]
    assert service.stopping and service._runner is None and service._preparing.done()
