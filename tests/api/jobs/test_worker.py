"""A worker without a port: it runs what a server elsewhere has accepted."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest
from service_fixtures import TILEWISE
from starlette.testclient import TestClient

from tilewise.api.app import create_app
from tilewise.api.jobs import worker
from tilewise.api.service.service import Options
from tilewise.db.jobs import Jobs, State
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.errors import Unavailable

JOB = {"kernel": "vector_add", "shapes": [{"N": 123_457}], "device": "model:Ascend910B4", "search": "random"}


def test_each_device_is_opened_once_and_those_that_fail_are_named(bowl, monkeypatch):
    def open_device(device_id):
        if device_id == "cuda:1":
            raise Unavailable("it fell off the bus")
        return opened.setdefault(device_id, bowl.FormulaDevice())

    opened, told = {}, []
    monkeypatch.setattr(worker, "open_device", open_device)
    monkeypatch.setattr(worker, "choose", lambda text: text)
    monkeypatch.setattr(worker, "chips", lambda text: ["cuda:0", "cuda:1"] if text == "cuda" else [text])
    lanes = worker.lanes_of(["cuda", "cuda:0", "model:Bowl"], told.append)
    assert [(lane.id, lane.name, lane.toolchain) for lane in lanes] == [
        ("cuda:0", "Bowl", "formula 1"),
        ("model:Bowl", "Bowl", "formula 1"),
    ]
    assert told == ["cuda:1 is left out: it fell off the bus"]
    assert all(device.closed for device in opened.values())
    with pytest.raises(Unavailable, match="no accelerator that works"):
        worker.lanes_of(["cuda:1"], told.append)


@pytest.mark.full
@pytest.mark.parametrize("url", ["store_url", "postgres_url"])
def test_a_worker_runs_what_a_server_accepted_and_gives_it_back_when_it_is_stopped(url, request):
    url = request.getfixturevalue(url)
    with TestClient(create_app(url, Options(run_jobs=False))) as server:
        with open_store(url) as store:
            token = Tokens(store.database).create("test", Right.SUBMIT)
            jobs = Jobs(store.database)
        headers = {"authorization": f"Bearer {token}"}
        job = server.post("/v1/jobs", json=JOB | {"trials": 500}, headers=headers).json()
        assert (job["runnable_on"], job["waits"][:18]) == ([], "no worker is alive")
        words = [TILEWISE, "worker", "--devices", "model:Ascend910B4", "--db", url]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr.readline() == "tilewise works on model:Ascend910B4\n"
            with open_store(url) as store:
                jobs = Jobs(store.database)

                def tried():
                    return sum(len(store.trials(scope)) for scope in store.scopes())

                until(lambda: tried() >= 3)
                [listed] = server.get("/v1/workers").json()["workers"]
                [lane] = listed["devices"]
                assert (lane["id"], lane["job"], listed["draining"]) == ("model:Ascend910B4", job["id"], False)
                assert lane["toolchain"]
                asked = JOB | {"trials": 2, "toolchain": "another"}
                waiting = server.post("/v1/jobs", json=asked, headers=headers).json()
                assert "with the toolchain 'another'; they have " in waiting["waits"]
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
                left = jobs.get(job["id"])
                assert (left.state, left.fruitless, left.lane) == (State.QUEUED, 0, "model:Ascend910B4")
                assert jobs.get(waiting["id"]).attempts == 0
                assert server.get("/v1/workers").json() == {"workers": []}
        finally:
            process.kill()
            process.communicate()


def until(condition):
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up, "it took too long"
        time.sleep(0.1)
