"""Writes of one server take turns, so that none of them is lost to the others' locks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tilewise.api import service as services
from tilewise.db.jobs import Jobs
from tilewise.db.sql_store import open_store

JOB = {"kernel": "vector_add", "device": "model:Ascend910B4"}


def test_writes_at_once_wait_for_each_other_and_not_for_the_lock(client, admin, store_url, monkeypatch):
    """The store does not wait at all here: two writers at once would fail one of them."""
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
    assert "others are served" in problem_of(response, 503)["detail"]
    assert int(response.headers["retry-after"]) > 0
    client.portal.call(writing.release)
    assert client.post("/v1/jobs", json=JOB | {"shapes": [{"N": 1}]}, headers=admin).status_code == 201
