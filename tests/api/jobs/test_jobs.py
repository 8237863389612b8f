"""Jobs over REST, which real processes run on a modelled part."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from datetime import datetime

import pytest
from faults import held
from places import ROOT
from starlette.testclient import TestClient

from tilewise.api.app import create_app
from tilewise.api.jobs import processes
from tilewise.api.service.service import Options
from tilewise.client import Client
from tilewise.db.jobs import Jobs, State
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.db.workers import Lane, Workers
from tilewise.kernels import registry

JOB = {"kernel": "vector_add", "shapes": [{"N": 100_000}], "device": "model:Ascend910B4", "trials": 3}
LONG = JOB | {"trials": 500, "search": "tpe", "shapes": [{"N": 123_457}]}
"""One of 658 configs. A search that learns draws few at once, so its first trials are stored soon."""

SECONDS = 120.0


@pytest.fixture
def submitting(token_of):
    return token_of("submit")


def until(condition):
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it took too long")


def test_the_same_request_twice_is_one_job(client, submitting, problem_of):
    problem_of(client.post("/v1/jobs", json=JOB), 401)
    first = client.post("/v1/jobs", json=JOB, headers=submitting)
    assert first.status_code == 201
    job = first.json()
    assert first.headers["location"] == f"/v1/jobs/{job['id']}"
    second = client.post("/v1/jobs", json=dict(reversed(JOB.items())), headers=submitting)
    assert (second.status_code, second.json()) == (200, job)
    assert (job["state"], job["progress"], job["dtype"]) == ("queued", {}, "float32")
    assert client.get(f"/v1/jobs/{job['id']}").json() == job
    assert job.pop("runnable_on") == []
    assert job.pop("waits").startswith("no worker is alive: start tilewise worker")
    assert client.get("/v1/jobs").json() == {"jobs": [job]}
    problem_of(client.get("/v1/jobs/2"), 404)
    problem_of(client.get("/v1/jobs/x"), 404)


def test_shapes_in_another_order_or_given_twice_are_the_same_request(client, submitting):
    def submit(*sizes):
        body = JOB | {"shapes": [{"N": size} for size in sizes]}
        return client.post("/v1/jobs", json=body, headers=submitting).json()

    first = submit(100, 200, 100)
    assert first["shapes"] == [{"N": 100}, {"N": 200}]
    assert submit(200, 100) == first
    assert submit(200)["id"] != first["id"]


def test_a_waiting_job_can_be_cancelled_and_asked_for_again(client, submitting, problem_of):
    number = client.post("/v1/jobs", json=JOB, headers=submitting).json()["id"]
    problem_of(client.delete(f"/v1/jobs/{number}"), 401)
    assert client.delete(f"/v1/jobs/{number}", headers=submitting).json()["state"] == "cancelled"
    events = client.get(f"/v1/jobs/{number}/events")
    assert events.headers["content-type"].startswith("text/event-stream")
    [event] = [line for line in events.text.splitlines() if line.startswith("data: ")]
    assert json.loads(event.removeprefix("data: "))["state"] == "cancelled"
    assert client.post("/v1/jobs", json=JOB, headers=submitting).json()["id"] != number


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"kernel": "os.py:SPEC"}, 404, "unknown kernel"),
        ({"shapes": [{"N": 1}, {"M": 1}]}, 400, "shapes[1]: kernel vector_add has no dimension M"),
        ({"dtype": "int3"}, 400, "does not take 'int3'"),
        ({"device": "replay:/etc/passwd"}, 400, "this server has no device 'replay:/etc/passwd'; it has model:"),
        ({"device": "model:Ascend1"}, 400, "this server has no device 'model:Ascend1'"),
        ({"device": "Ascend910B4"}, 400, "this server has no device 'Ascend910B4'; it has model:"),
        ({"trials": 0}, 422, "#/trials"),
        ({"shapes": []}, 422, "#/shapes"),
        ({"priority": 1000}, 422, "#/priority"),
        ({"command": "rm"}, 422, "#/command"),
    ],
)
def test_what_cannot_run_here_is_refused(client, submitting, problem_of, change, status, said):
    assert said in problem_of(client.post("/v1/jobs", json=JOB | change, headers=submitting), status)["detail"]


def test_a_job_runs_tells_how_it_goes_and_its_result_is_looked_up(store_url, client, submitting):
    number = client.post("/v1/jobs", json=JOB, headers=submitting).json()["id"]
    with TestClient(create_app(store_url)) as running:
        text = running.get(f"/v1/jobs/{number}/events").text
        told = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
        assert told[-1]["state"] == "done", told[-1]
        assert {job["state"] for job in told} >= {"done"}
        assert told[-1]["progress"]["shapes_done"] == 1
        assert told[-1]["progress"]["clock"] == "modelled"
        found = running.get("/v1/configs/vector_add?N=100000&device=Ascend910B4").json()
        assert found["time_us"] == told[-1]["progress"]["best_us"]
        assert running.post("/v1/jobs", json=JOB, headers=submitting).status_code == 200
        again = running.post("/v1/jobs", json=JOB | {"trials": 1}, headers=submitting).json()["id"]
        until(lambda: running.get(f"/v1/jobs/{again}").json()["state"] == "done")
        assert (
            running.get(f"/v1/jobs/{again}").json()["progress"]["best_us"] == found["time_us"]
        )  # the stored trials used up the budget


OWN = """
from dataclasses import replace
from tilewise.kernels import registry
SPEC = replace(registry.load("vector_add"), name="mine", origin="")
"""


@pytest.mark.full
def test_a_kernel_that_the_operator_named_is_listed_tuned_and_answered_for(serve, address, store_url, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(OWN)
    url = address(serve("--kernel", f"{own}:SPEC"))
    with open_store(store_url) as store:
        token = Tokens(store.database).create("test", Right.SUBMIT)
    with Client(url, token=token) as server:
        assert "mine" in [kernel["name"] for kernel in server.kernels()]
        job = server.submit("mine", [{"N": 100_000}], device="model:Ascend910B4", trials=2)
        told = list(server.events(job["id"]))
        assert told[-1]["state"] == "done", told[-1]
        assert server.lookup("mine", {"N": 100_001}, device="Ascend910B4", match="nearest")["match"] == "nearest"
    done = serve("--kernel", f"{tmp_path}/none.py:SPEC")
    assert (done.wait(120), done.stderr.read().count("\n")) == (2, 1)


def test_a_job_whose_process_is_killed_goes_on_from_its_trials_and_one_that_is_cancelled_stops(
    store_url, client, submitting
):
    number = client.post("/v1/jobs", json=LONG, headers=submitting).json()["id"]
    with open_store(store_url) as store, TestClient(create_app(store_url)) as running:
        jobs = Jobs(store.database)

        def tried():
            return sum(sum(store.result(scope).counts.values()) for scope in store.scopes())

        until(lambda: jobs.get(number).state is State.RUNNING and tried() >= 2)
        first = jobs.get(number)
        kept = tried()
        os.kill(int(first.owner.split("/")[-2]), signal.SIGKILL)
        again = until(lambda: (job := jobs.get(number)).attempts == 2 and job.state is State.RUNNING and job)
        assert again.owner != first.owner
        until(lambda: tried() > kept)
        seen = [trial.config_key for scope in store.scopes() for trial in store.trials(scope)]
        assert len(seen) == len(set(seen))
        running.delete(f"/v1/jobs/{number}", headers=submitting)
        ended = until(lambda: (job := jobs.get(number)).state.is_final and job)
        assert (ended.state, ended.reason) == (State.CANCELLED, "")
        owner = again.owner
    until(lambda: processes.is_gone(owner) is not False)


@pytest.mark.full
def test_ten_restarts_of_the_server_and_a_stop_of_its_process_lose_nothing_and_count_nothing(
    store_url, client, submitting
):
    number = client.post("/v1/jobs", json=LONG, headers=submitting).json()["id"]
    with open_store(store_url) as store:
        jobs = Jobs(store.database)

        def tried():
            return sum(len(store.trials(scope)) for scope in store.scopes())

        for restart in range(10):
            before = tried()
            with TestClient(create_app(store_url)):
                until(lambda: jobs.get(number).state is State.RUNNING)
                if restart % 2:  # the others may end before their first trial
                    until(lambda before=before: tried() > before)
            job = jobs.get(number)
            assert (job.state, job.fruitless, tried() >= before) == (State.QUEUED, 0, True)
        with TestClient(create_app(store_url)):
            first = until(lambda: (job := jobs.get(number)).state is State.RUNNING and job.beats > 1 and job)
            os.kill(int(first.owner.split("/")[-2]), signal.SIGTERM)
            again = until(lambda: (job := jobs.get(number)).owner not in ("", first.owner) and job)
            assert (again.attempts, again.fruitless) == (first.attempts + 1, 0)
        assert tried() >= before


def test_a_look_up_that_finds_nothing_becomes_a_job_where_that_is_wanted(store_url, client):
    asked = "/v1/configs/vector_add?N=4242&device=Ascend910B4"
    with TestClient(create_app(store_url, Options(run_jobs=False, tune_misses=True))) as wanting:
        for _ in range(3):
            assert wanting.get(asked).status_code == 404
        assert wanting.get(asked.replace("Ascend910B4", "NVIDIA%20H200")).status_code == 404
        [job] = until(lambda: wanting.get("/v1/jobs").json()["jobs"])
        time.sleep(0.2)
        assert wanting.get("/v1/jobs").json()["jobs"] == [job]
        query = {"kernel": "vector_add", "dims": {"N": 4242}, "device": "Ascend910B4"}
        queries = [query, query | {"dims": {"N": 4343}}, query | {"kernel": "nobody_s"}]
        assert wanting.post("/v1/lookup", json={"queries": queries}).status_code == 200
        until(lambda: len(wanting.get("/v1/jobs").json()["jobs"]) == 2)
        newest = wanting.get("/v1/jobs").json()["jobs"][0]
        assert newest["shapes"] == [{"N": 4343}]
    assert (job["shapes"], job["device"], job["priority"]) == ([{"N": 4242}], "model:Ascend910B4", -100)
    assert client.get(asked.replace("4242", "4444")).status_code == 404
    assert len(client.get("/v1/jobs").json()["jobs"]) == 2


def test_a_miss_is_answered_while_another_holds_the_lock_and_becomes_a_job_afterwards(store_url, client, tmp_path):
    asked = "/v1/configs/vector_add?N=4242&device=Ascend910B4"
    with TestClient(create_app(store_url, Options(run_jobs=False, tune_misses=True))) as wanting:
        with held(tmp_path / "tilewise.db"):
            assert wanting.get(asked).status_code == 404
            assert wanting.get("/v1/jobs").json()["jobs"] == []
        assert until(lambda: wanting.get("/v1/jobs").json()["jobs"])[0]["shapes"] == [{"N": 4242}]


def test_a_shape_that_a_program_guessed_is_a_job_of_the_server_that_its_user_named(
    serve, address, tmp_path, monkeypatch
):
    """The server is a real one; the program launches from a file and is connected to it by the setting alone."""
    from tilewise.tuner.runtime.config_selector import ConfigSelector

    class Tensor:
        def get_device(self):
            return 0

    url = address(serve("--tune-misses", "--no-jobs"))
    monkeypatch.setenv("TILEWISE_MISSES", "off")
    monkeypatch.setenv("TILEWISE_MISSES_SERVER", url)
    selector = ConfigSelector(registry.load("vector_add"), str(tmp_path / "none.json"), device="Ascend910B4")
    assert selector.choose({"N": 4243}, "float32", Tensor()).match == "predicted"
    with Client(url) as server:
        until(lambda: [job["shapes"] for job in server.jobs()] == [[{"N": 4243}]])
        [job] = server.jobs()
    assert (job["kernel"], job["device"], job["state"]) == ("vector_add", "model:Ascend910B4", "queued")


def test_a_database_that_another_holds_is_said_and_look_ups_go_on(
    client, tune, admin, tmp_path, problem_of, monkeypatch
):
    tune()
    asked = "/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4"
    service = client.app.state.service
    with open_store(f"sqlite:///{tmp_path}/tilewise.db?timeout=0.2") as impatient:
        monkeypatch.setattr(service, "writer", impatient)
        monkeypatch.setattr(service, "jobs_writer", Jobs(impatient.database))
        with closing(sqlite3.connect(tmp_path / "tilewise.db")) as other:
            other.execute("BEGIN EXCLUSIVE")
            response = client.post("/v1/jobs", json=JOB, headers=admin)
            assert problem_of(response, 503)["type"] == "urn:tilewise:problem:database"
            assert int(response.headers["retry-after"]) > 0
            assert client.get(asked).status_code == 200
            other.rollback()
        assert client.post("/v1/jobs", json=JOB, headers=admin).status_code == 201


@pytest.mark.full
def test_a_retune_times_the_bests_of_an_older_toolchain_again(store_url, client, submitting, tmp_path):
    (tmp_path / "older.db").write_bytes(gzip.decompress((ROOT / "tests" / "golden" / "tiles.db.gz").read_bytes()))
    with open_store(f"sqlite:///{tmp_path / 'older.db'}") as older, open_store(store_url) as store:
        for scope in older.scopes("vector_add", "Ascend910B4"):
            store.record(scope, older.trials(scope))
    wanted = {"kernel": "vector_add", "shapes": [], "device": "model:Ascend910B4", "search": "retune"}
    answer = client.post("/v1/jobs", json=wanted, headers=submitting)
    assert (answer.status_code, answer.json()["shapes"]) == (201, [])
    number = answer.json()["id"]
    assert client.post("/v1/jobs", json=wanted, headers=submitting).json()["id"] == number
    with TestClient(create_app(store_url)) as running:
        job = until(lambda: (now := running.get(f"/v1/jobs/{number}").json())["state"] in ("done", "failed") and now)
        assert (job["state"], job["reason"], job["progress"]["shapes_done"]) == ("done", "", 1)
        assert all(flip["dims"] == {"N": 1_000_000} for flip in job["progress"]["flipped"])
        found = running.get("/v1/configs/vector_add?N=1000000&device=Ascend910B4").json()
        assert "model 6." not in found["toolchain"]
        again = running.post("/v1/jobs", json=wanted, headers=submitting)
        assert again.status_code == 201 and again.json()["id"] != number


# Retry, delete, quotas and deadlines


def test_a_cancelled_job_is_retried_and_its_record_deleted_once_it_has_ended(client, submitting, problem_of):
    number = client.post("/v1/jobs", json=JOB, headers=submitting).json()["id"]
    path = f"/v1/jobs/{number}"
    problem_of(client.post(f"{path}/retry"), 401)
    problem_of(client.delete(f"{path}/record"), 401)
    assert "is queued; cancel it" in problem_of(client.delete(f"{path}/record", headers=submitting), 400)["detail"]
    assert client.delete(path, headers=submitting).json()["state"] == "cancelled"
    assert client.post(f"{path}/retry", headers=submitting).json()["state"] == "queued"
    assert client.delete(path, headers=submitting).json()["state"] == "cancelled"
    assert client.delete(f"{path}/record", headers=submitting).json()["id"] == number
    for gone in (client.post(f"{path}/retry", headers=submitting), client.delete(f"{path}/record", headers=submitting)):
        problem_of(gone, 404)


def test_a_token_that_has_too_many_jobs_is_told_to_wait(store_url, client, submitting, problem_of):
    with TestClient(create_app(store_url, Options(run_jobs=False, jobs_a_token=2))) as strict:
        for seed in (1, 2, 1):
            assert strict.post("/v1/jobs", json=JOB | {"seed": seed}, headers=submitting).status_code in (200, 201)
        response = strict.post("/v1/jobs", json=JOB | {"seed": 3}, headers=submitting)
        assert "this token has 2 jobs" in problem_of(response, 429)["detail"]
        assert int(response.headers["retry-after"]) > 0


def test_a_deadline_a_toolchain_and_a_fresh_start_are_part_of_the_job(client, submitting, problem_of):
    asked = JOB | {"within": 60, "toolchain": "triton 9", "fresh": True}
    job = client.post("/v1/jobs", json=asked, headers=submitting).json()
    assert (job["toolchain"], job["fresh"]) == ("triton 9", True)
    assert 50 < (datetime.fromisoformat(job["deadline"]) - datetime.fromisoformat(job["created"])).total_seconds() < 70
    assert client.post("/v1/jobs", json=asked, headers=submitting).json()["id"] == job["id"]
    assert client.post("/v1/jobs", json=JOB, headers=submitting).json()["id"] != job["id"]
    problem_of(client.post("/v1/jobs", json=JOB | {"within": 0}, headers=submitting), 422)


def test_a_server_without_chips_accepts_what_a_live_worker_elsewhere_can_run_and_says_which(
    store_url, client, submitting, problem_of
):
    asked = JOB | {"device": "NVIDIA H200"}
    problem_of(client.post("/v1/jobs", json=asked, headers=submitting), 400)
    with open_store(store_url) as store:
        lanes = [Lane(f"cuda:{number}", "NVIDIA H200", "measured", "cuda 12") for number in (0, 1)]
        Workers(store.database).register("alpha/1/a", "alpha", "0.1.0", lanes, ["vector_add"])
    for device in ("NVIDIA H200", "cuda", "cuda:1"):
        job = client.post("/v1/jobs", json=JOB | {"device": device}, headers=submitting).json()
        assert job["runnable_on"] == (["alpha cuda:1"] if device == "cuda:1" else ["alpha cuda:0", "alpha cuda:1"])
    assert (
        "no device 'cuda:2'"
        in problem_of(client.post("/v1/jobs", json=JOB | {"device": "cuda:2"}, headers=submitting), 400)["detail"]
    )
    [worker] = client.get("/v1/workers").json()["workers"]
    assert (worker["host"], [lane["id"] for lane in worker["devices"]]) == ("alpha", ["cuda:0", "cuda:1"])
