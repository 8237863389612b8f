"""A worker without a port: it runs what a server elsewhere has accepted."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from places import ROOT
from service_fixtures import TILEWISE
from starlette.testclient import TestClient

from tilewise.api.app import create_app
from tilewise.api.jobs import worker
from tilewise.api.service.service import Options
from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.db.workers import Lane, Workers
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_has_the_runner_finish_and_stop_and_leaves_the_handlers_as_they_were(number, store_url, monkeypatch):
    calls, lanes, before = [], [Lane("cuda:0", "H200", "measured", "1")], signal.getsignal(number)

    class Runner:
        def __init__(self, url, jobs, lanes_here, *others, arrivals):
            assert (url, lanes_here()) == (store_url, lanes)

        def __getattr__(self, name):
            return lambda: calls.append(name)

    def ready():
        calls.append("ready")
        signal.raise_signal(number)

    monkeypatch.setattr(worker, "Runner", Runner)
    worker.run(store_url, lanes, ready)
    assert calls == ["start", "ready", "drain", "stop"]
    assert signal.getsignal(number) is before


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


@pytest.mark.full
@pytest.mark.parametrize("url", ["store_url", "postgres_url"])
def test_a_worker_runs_a_kernel_that_it_has_from_the_database_if_it_is_signed_with_its_key(url, request, tmp_path):
    """The worker that has another key says so in a line, and its host's kernels stay those that it knows."""
    url = request.getfixturevalue(url)
    home = tmp_path / "home"
    home.mkdir()
    file = home / "scaled_add.py"
    file.write_text((ROOT / "tests" / "golden" / "scaled_add.py").read_text())
    keys = [tmp_path / name for name in ("key", "another")]
    for number, key in enumerate(keys):
        key.write_bytes(bytes([number]) * 32)
        key.chmod(0o600)

    def environment(key):
        return {**os.environ, "TILEWISE_KERNEL_KEY": str(key), "TILEWISE_CACHE": str(tmp_path / f"cache of {key.name}")}

    signed = subprocess.run(
        [TILEWISE, "kernels", "sign", f"{file}:SPEC", "--db", url],
        env=environment(keys[0]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert signed.stdout.startswith("scaled_add is signed; its content hash is ")
    file.unlink()
    with open_store(url) as store:
        jobs = Jobs(store.database)
        job = jobs.submit(Request("scaled_add", "a1", [{"N": 5000}], "float32", "model:Ascend910B4", 2))[0]
        workers = [
            subprocess.Popen(
                [TILEWISE, "worker", "--devices", "model:Ascend910B4", "--db", url],
                env=environment(key),
                stderr=(tmp_path / f"{key.name}.log").open("w"),
            )
            for key in keys
        ]
        try:
            until(lambda: jobs.get(job.id).state.is_final)
            assert (jobs.get(job.id).state, jobs.get(job.id).reason) == (State.DONE, "")
            until(lambda: "is not signed with this worker's key" in (tmp_path / "another.log").read_text())
            until(lambda: len(Workers(store.database).all()) == 2)
            knowing = [worker for worker in Workers(store.database).all() if "scaled_add" in worker.kernels]
            assert len(knowing) == 1
        finally:
            for worker_process in workers:
                worker_process.terminate()
            for worker_process in workers:
                assert worker_process.wait(60) == 0


def until(condition):
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up, "it took too long"
        time.sleep(0.1)
