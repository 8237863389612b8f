"""The application: what it answers at other addresses than its own, and what it leaves behind."""

from __future__ import annotations

import os

from starlette.testclient import TestClient

from tilewise.api.app import create_app
from tilewise.api.service.service import Options


def test_an_address_with_a_slash_too_many_is_unknown(client, problem_of):
    problem_of(client.get("/v1/kernels/", follow_redirects=False), 404)


def test_a_stopped_application_keeps_no_file_open(tmp_path, tune, store_url):
    tune()
    with TestClient(create_app(store_url, Options(run_jobs=False))) as client:
        assert client.get("/readyz").status_code == 200
        assert open_files(tmp_path)
    assert open_files(tmp_path) == []


def open_files(folder) -> list[str]:
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return [found for link in links if os.path.lexists(link) and (found := os.readlink(link)).startswith(str(folder))]


def test_each_operation_is_documented_with_the_right_that_it_needs(client):
    """Whoever may read needs no token on a server whose reads are open."""
    paths = client.get("/openapi.json").json()["paths"]
    security = {
        (method, path): operation.get("security") for path, each in paths.items() for method, operation in each.items()
    }
    everybody, token = [{"token": []}, {}], [{"token": []}]
    assert security["get", "/healthz"] == []
    for operation in [("get", "/v1/configs/{kernel}"), ("post", "/v1/lookup"), ("get", "/v1/jobs")]:
        assert security[operation] == everybody
    for operation in [("post", "/v1/jobs"), ("delete", "/v1/jobs/{number}"), ("post", "/v1/import")]:
        assert security[operation] == token
    for path, each in paths.items():
        for method, operation in each.items():
            refusals = {"401", "403", "429"} & operation["responses"].keys()
            assert bool(refusals) == bool(operation["security"]), (method, path)
            assert len(refusals) in (0, 3)
            for status in refusals:
                assert set(operation["responses"][status]["content"]) == {"application/problem+json"}
