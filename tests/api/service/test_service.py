"""Work of the service between requests: writes take turns, and indexes are built before anybody needs them."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from places import LANDSCAPES
from starlette.testclient import TestClient

from tilewise.api.app import create_app
from tilewise.api.service import service as services
from tilewise.api.service.service import Options, Service
from tilewise.db.jobs import Jobs
from tilewise.db.sql.sql_store import open_store
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.tuning.loop import Budget, Tuning

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


def test_the_shapes_are_indexed_after_the_start_and_a_look_up_reads_but_the_new_ones(store_url, tune, monkeypatch):
    monkeypatch.setattr(services, "_QUIET_SECONDS", 0.0)
    for m in range(1, 8):
        tune(dims={"M": m, "N": 8})
    with TestClient(create_app(store_url, Options(run_jobs=False))) as client:
        for preparing in [thread for thread in threading.enumerate() if thread.name == "prepare"]:
            preparing.join(timeout=60)
        source, read = client.app.state.service.source, []
        shape_pages = source.store.shape_pages

        def noted(*family, last):
            for number, page in shape_pages(*family, last=last):
                read.extend(page.values())
                yield number, page

        monkeypatch.setattr(source.store, "shape_pages", noted)
        near = "/v1/configs/row_reduce?M=8&N=8&device=Ascend910B4&match=nearest"
        assert client.get(near).json()["distance"] > 0
        assert read == []
        tune(dims={"M": 9, "N": 8})
        assert "M=9,N=8" in client.get(near).json()["why"]
        assert read == ['[{"M":9,"N":8}]']


def test_a_replayed_tuning_keeps_no_other_family_from_being_indexed(store_url, tune, monkeypatch):
    """A recording has one problem without dimensions, so its family has no shapes to index."""
    monkeypatch.setattr(services, "_QUIET_SECONDS", 0.0)
    file = LANDSCAPES / "max_rows-300x4096-float32-Ascend910B4-modelled.json.gz"
    with ReplayDevice(str(file)) as device, open_store(store_url, create=True) as store:
        Tuning(device.spec, device.problem, device, store, budget=Budget(2), search="random", seed=0).run()
    tune(dims={"M": 7, "N": 8})
    with TestClient(create_app(store_url, Options(run_jobs=False))) as client:
        service = client.app.state.service
        service._preparing.join(timeout=60)
        assert [kernel for kernel, _, _ in service.store.families()] == ["max_rows", "row_reduce"]
        monkeypatch.setattr(service.source.store, "shape_pages", lambda *family, last: iter(()))  # read no more
        near = client.get("/v1/configs/row_reduce?M=8&N=8&device=Ascend910B4&match=nearest")
        assert near.json()["distance"] > 0, near.text


def test_a_service_that_ends_while_it_makes_its_indexes_leaves_no_thread_behind(store_url, monkeypatch):
    began = threading.Event()

    def prepare(source):
        began.set()
        time.sleep(0.5)

    monkeypatch.setattr(services, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr("tilewise.tuner.lookup.store_source.StoreSource.prepare", prepare)
    with TestClient(create_app(store_url, Options(run_jobs=False))):
        assert began.wait(30)
    assert "prepare" not in [thread.name for thread in threading.enumerate()]


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
