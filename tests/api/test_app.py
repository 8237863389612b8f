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
