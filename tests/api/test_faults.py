"""Real faults under a running service: its answers meanwhile, and its recovery afterwards.

These tests assert what docs/operations.md says of each fault; tests/db/sql/test_faults.py does so for the store alone.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime

import httpx2
import pytest
from faults import WallClock, fill, held
from starlette.testclient import TestClient

from tilewise.api.app import create_app
from tilewise.api.service.service import Options
from tilewise.client import Client
from tilewise.db.sql import schema
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens

ASKED = "/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4"
JOB = {"kernel": "vector_add", "shapes": [{"N": 100_000}], "device": "model:Ascend910B4", "trials": 1}


def token_in(url: str, right: str = "admin") -> dict[str, str]:
    with open_store(url) as store:
        return {"authorization": f"Bearer {Tokens(store.database).create('tests', Right(right))}"}


def test_on_a_full_disk_look_ups_go_on_and_writes_are_refused_until_there_is_room(disk, tune_into, problem_of):
    folder, _ = disk
    url = f"sqlite:///{folder}/tiles.db"
    tune_into(url)
    tune_into(url, dims={"M": 7, "N": 7})
    admin = token_in(url)
    with TestClient(create_app(url, Options(run_jobs=False))) as client:
        export = client.get("/v1/export").content
        assert client.get(ASKED).status_code == 200
        ballast = fill(folder)
        for answered in range(200):  # the free space inside the log is used up first
            body = JOB | {"shapes": [{"N": n} for n in range(answered * 100 + 1, answered * 100 + 101)]}
            response = client.post("/v1/jobs", json=body, headers=admin)
            if response.status_code != 201:
                break
        assert problem_of(response, 507)["type"] == "urn:tilewise:problem:no-space"
        assert "retry-after" not in response.headers
        assert str(folder) not in response.text
        assert client.get(ASKED).status_code == 200
        assert client.get(ASKED.replace("1000", "7").replace("8192", "7")).status_code == 200
        assert client.get("/v1/export").json()["entries"] == json.loads(export)["entries"]
        assert client.get("/readyz").status_code == 200
        assert len(client.get("/v1/jobs?limit=200").json()["jobs"]) == answered
        ballast.unlink()
        assert client.post("/v1/jobs", json=body, headers=admin).status_code == 201
        assert client.post("/v1/import", content=export, headers=admin).json()["added"] == 0


def test_a_lock_that_another_holds_for_seconds_is_waited_for_and_look_ups_go_on(
    client, tune, admin, tmp_path, problem_of
):
    tune()
    export = client.get("/v1/export").content

    def submit(n):
        return client.post("/v1/jobs", json=JOB | {"shapes": [{"N": n}]}, headers=admin).status_code

    with ThreadPoolExecutor(8) as pool, held(tmp_path / "tilewise.db") as release:
        writing = [pool.submit(submit, n) for n in range(1, 5)]
        importing = pool.submit(client.post, "/v1/import", content=export, headers=admin)
        for n in (8192, 8190):
            for match in ("exact", "nearest"):
                status = client.get(f"{ASKED.replace('8192', str(n))}&match={match}").status_code
                assert status == (404 if (n, match) == (8190, "exact") else 200)
        assert not wait([*writing, importing], timeout=1.0).done
        release()
        assert [each.result() for each in writing] == [201] * 4
        assert importing.result().status_code == 200


def test_on_a_read_only_file_system_everything_is_read_and_nothing_written(disk, tune_into, problem_of):
    folder, remount = disk
    url = f"sqlite:///{folder}/tiles.db"
    tune_into(url)
    admin = token_in(url)
    remount("ro")
    with TestClient(create_app(url)) as client:
        assert client.get("/readyz").status_code == 200
        for _ in range(2):
            assert client.get(ASKED).json()["time_us"] == 31.5
        assert client.get(f"{ASKED.replace('8192', '8190')}&match=nearest").json()["match"] == "nearest"
        export = client.get("/v1/export").content
        assert len(json.loads(export)["entries"]) == 1
        for path, body in (("/v1/jobs", json.dumps(JOB)), ("/v1/import", export)):
            headers = admin | {"content-type": "application/json"}
            response = client.post(path, content=body, headers=headers)
            assert problem_of(response, 503)["type"] == "urn:tilewise:problem:read-only"
            assert "retry-after" not in response.headers
    remount("rw")
    with TestClient(create_app(url, Options(run_jobs=False))) as client:
        assert client.post("/v1/jobs", json=JOB, headers=admin).status_code == 201


KILLED = """
import os, signal, sys
from sqlalchemy import Engine, event
from tilewise.cli import main

left = int(sys.argv.pop(1))

def count(*_):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

event.listen(Engine, "before_cursor_execute", count)
event.listen(Engine, "commit", count)
sys.argv = ["tilewise", *sys.argv[1:]]
main()
"""


def test_a_server_killed_while_it_upgrades_serves_everything_when_it_is_started_again(
    serve, tune, store_url, address, monkeypatch
):
    tune()
    with open_store(store_url) as store, store.database.write() as connection:
        newer = (
            "answers",
            "jobs",
            "workers",
            "tokens",
            "signed_kernels",
            "helion_records",
            "artefacts",
            "compilations",
        )
        for table in newer:
            connection.exec_driver_sql(f"DROP TABLE {table}")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0004'")
    command = ["serve", "--port", "0", "--no-jobs", "--db", store_url]
    for statements in (4, 8):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(statements), *command], capture_output=True, timeout=60, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
    url = address(serve("--no-jobs"))
    assert httpx2.get(url + ASKED).json()["time_us"] == 31.5
    assert httpx2.get(f"{url}/readyz").status_code == 200
    with open_store(store_url) as store:
        assert schema.revision(store.database) == schema.HEAD


@pytest.mark.full
def test_a_clock_that_jumps_changes_nothing_but_the_moments_that_are_told(
    serve, tune, store_url, address, tmp_path, monkeypatch
):
    """The clock jumps days forward and back while a job runs, its events are followed, and writes are counted."""
    tune()
    day, clock = 86_400, WallClock(tmp_path)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    token = token_in(store_url)["authorization"].removeprefix("Bearer ")
    clock.set(3 * day)
    server = serve("--writes-a-minute", "4")
    with Client(url := address(server), token=token, timeout=60) as client:
        ahead = client.submit("vector_add", [{"N": 100_000}], device="model:Ascend910B4", trials=2)
        assert moment(ahead["created"]) > time.time() + 2 * day
        told = client.events(ahead["id"])
        for job in told:
            if job["state"] == "running":
                clock.set(-3 * day)
                break
        behind = client.submit("vector_add", [{"N": 100_001}], device="model:Ascend910B4", trials=1, priority=-1)
        assert moment(behind["created"]) < time.time() - 2 * day
        assert (behind["state"], behind["id"]) == ("queued", ahead["id"] + 1)
        assert [job["id"] for job in client.jobs()] == [behind["id"], ahead["id"]]
        assert [job["id"] for job in client.jobs(limit=1)] == [behind["id"], ahead["id"]]
        assert client.import_results(client.export())["added"] == 0
        assert client.cancel(behind["id"])["state"] == "cancelled"
        for seconds in (0, 30 * day, -30 * day):  # all four writes of this minute were made; no clock allows a fifth
            clock.set(seconds)
            response = httpx2.post(f"{url}/v1/jobs", json=JOB, headers={"authorization": f"Bearer {token}"})
            assert response.status_code == 429
            assert 1 <= int(response.headers["retry-after"]) <= 15
        last = [job["state"] for job in told][-1]
        assert last == "done"
        ended = client.job(ahead["id"])
        assert moment(ended["finished"]) < moment(ended["started"])
        assert ended["attempts"] == 1
        found = client.lookup("vector_add", {"N": 100_000}, device="Ascend910B4")
        assert found["time_us"] == ended["progress"]["best_us"]
        paged = list(client.trials(limit=1))
        assert len(paged) == len({(*trial["dims"].items(), *trial["config"].items()) for trial in paged})
        tag = httpx2.get(url + ASKED).headers["etag"]
        clock.set(3 * day)
        assert httpx2.get(url + ASKED, headers={"if-none-match": tag}).status_code == 304
        assert client.lookup("row_reduce", {"M": 1000, "N": 8192}, device="Ascend910B4")["time_us"] == 31.5


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
