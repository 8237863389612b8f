"""Every error is answered with a problem document, whichever layer raised it."""

from __future__ import annotations

import logging

import pytest

from tilewise import errors
from tilewise.api.http.problem_types import entry_of
from tilewise.tuner.lookup.resolve import NotTuned

STATUS = {
    "TilewiseError": 500,
    "UsageError": 400,
    "UnknownKernel": 404,
    "UnknownDevice": 400,
    "UnknownDtype": 400,
    "BadDimension": 400,
    "BadConfig": 400,
    "BadSpec": 400,
    "BadImport": 400,
    "Busy": 429,
    "Forbidden": 403,
    "Unauthorized": 401,
    "NotFound": 404,
    "Unavailable": 503,
    "InUse": 503,
    "NothingFeasible": 422,
    "NoSpace": 507,
    "ReadOnly": 503,
    "StoreError": 503,
    "LeaseLost": 409,
}


def test_every_error_of_ours_has_a_status():
    assert {name: entry_of(getattr(errors, name)(""))[0] for name in errors.__all__} == STATUS
    assert entry_of(NotTuned("", []))[0] == 404


@pytest.mark.parametrize("path", ["/v1", "/v1/configs", "/v1/configs/", "/v1/configs/a/b", "/redoc", "/v1/kernels/"])
def test_an_unknown_path_is_a_problem(client, problem_of, path):
    assert "/openapi.json" in problem_of(client.get(path), 404)["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/static/style.css", "GET, HEAD"),
        ("POST", "/v1/configs/row_reduce", "GET, HEAD"),
        ("DELETE", "/v1/kernels", "GET, HEAD"),
        ("GET", "/v1/lookup", "POST"),
        ("PUT", "/healthz", "GET, HEAD"),
        ("PUT", "/v1/jobs", "GET, HEAD, POST"),
        ("PATCH", "/v1/jobs/7", "DELETE, GET, HEAD"),
    ],
)
def test_a_wrong_method_is_a_problem_that_says_which_is_right(client, problem_of, admin, method, path, allowed):
    response = client.request(method, path, headers=admin)
    assert problem_of(response, 405)["detail"] == f"{method} is not allowed here; allowed: {allowed}"
    assert response.headers["allow"] == allowed


def test_a_body_with_two_faults_is_answered_with_both_and_the_first_in_words(client, problem_of):
    problem = problem_of(client.post("/v1/lookup", json={"queries": 1, "more": 2}), 422)
    first, second = problem["errors"]
    assert (first["pointer"], second["pointer"]) == ("#/queries", "#/more")
    assert first["detail"] != second["detail"]
    said = f"the request does not match its schema: {first['pointer']}: {first['detail']} (and 1 more)"
    assert problem["detail"] == said


def test_a_defect_is_logged_but_not_shown(client, problem_of, monkeypatch, caplog):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("what nobody outside should read")

    monkeypatch.setattr(client.app.state.store, "history", fail)
    with caplog.at_level(logging.ERROR):
        response = client.get("/v1/history/row_reduce?M=1&N=1&device=A", headers={"x-request-id": "one-7"})
    assert problem_of(response, 500)["detail"] == "the server failed unexpectedly; its log says why"
    assert "outside" not in response.text
    assert response.headers["x-request-id"] == "one-7"
    assert "what nobody outside should read" in caplog.text
    assert caplog.records[0].request_id == "one-7"


def test_a_database_failure_is_logged_with_its_reason(client, problem_of, monkeypatch, caplog):
    def fail(*_: object, **__: object) -> None:
        raise errors.StoreError("/srv/tilewise.db is damaged")

    monkeypatch.setattr(client.app.state.store, "history", fail)
    with caplog.at_level(logging.ERROR):
        problem = problem_of(client.get("/v1/history/row_reduce?M=1&N=1&device=A"), 503)
    assert "/srv" not in problem["detail"]
    assert "/srv/tilewise.db is damaged" in caplog.text


def test_the_instance_is_the_request_as_sent(client, problem_of):
    path = "/v1/configs/%E4%BD%A0%22%3C?M=%20&a%5B%5D=%7B&device=A"
    assert problem_of(client.get(path), 400)["instance"] == path


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/configs/{'k' * 3000}%0A?M=1&device=A",
        f"/v1/configs/row_reduce?{'k' * 3000}%0A=1&device=A",
        f"/v1/configs/row_reduce?M=1&N=1&device=A&dtype={'k' * 3000}%0A",
        f"/v1/configs/row_reduce?M=1&N=1&device={'k' * 3000}%0A",
        "/v1/configs/row_reduce?M=1&N=1&device=%0A%1B[31m",
        f"/{'k' * 3000}%0A",
    ],
)
def test_what_was_sent_comes_back_short_and_on_one_line(client, path):
    detail = client.get(path).json()["detail"]
    assert len(detail) < 1100
    assert detail.isprintable()


def test_a_body_with_one_fault_is_answered_with_that_alone(client, problem_of):
    problem = problem_of(client.post("/v1/lookup", json={"queries": 1}), 422)
    [fault] = problem["errors"]
    assert problem["detail"] == f"the request does not match its schema: #/queries: {fault['detail']}"
