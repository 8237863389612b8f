"""The service runs on the core install alone, and imports what arrives in pieces."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import pytest

from tilewise.api.routes import imports
from tilewise.db.exchange.native.export_file import stream_native
from tilewise.db.records import digest
from tilewise.db.sql.sql_store import open_store

HIDDEN = """
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {names} else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""
"""A script that makes packages look as if they were not installed."""


def python(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_service_answers_without_torch_and_triton(store_url, tune):
    tune()
    asked = """
import importlib.util
assert importlib.util.find_spec("torch") is None and importlib.util.find_spec("triton") is None
from starlette.testclient import TestClient
from tilewise.api.app import create_app
with TestClient(create_app(sys.argv[1])) as client:
    print(client.get("/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4").status_code)
    print(client.get("/v1/kernels").status_code, client.get("/v1/devices").status_code)
"""
    done = python(HIDDEN.format(names={"torch", "triton", "torch_npu", "ascendnpuir", "xdsl"}) + asked, store_url)
    assert (done.stdout.split(), done.stderr, done.returncode) == (["200", "200", "200"], "", 0)


def test_the_command_is_defined_without_loading_the_service():
    done = python(
        HIDDEN.format(names={"fastapi", "uvicorn", "sqlalchemy"}) + "import tilewise.cli.commands.service.serve"
    )
    assert (done.stderr, done.returncode) == ("", 0)


def test_large_imports_that_wait_leave_places_for_small_ones(client, admin):
    empty = {"format": "tilewise", "version": 1, "created": "2026-11-20T00:00:00+00:00", "entries": []}
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(client.app.state.service.import_place(None))
        assert client.post("/v1/import", json=empty | {"sha256": digest([])}, headers=admin).status_code == 200
        refused = client.post("/v1/import", content=iter([b"{}"]), headers=admin)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")


@pytest.mark.parametrize("piece", [1, 100, 1 << 20])
def test_an_import_is_kept_whole_in_whatever_pieces_it_arrives(client, admin, tune_into, tmp_path, monkeypatch, piece):
    there = f"sqlite:///{tmp_path / 'there.db'}"
    tune_into(there)
    with open_store(there) as store:
        data, [scope] = b"".join(stream_native(store, store.scopes())), store.scopes()
        trials = store.trials(scope)
    monkeypatch.setattr(imports, "_PIECE", piece)
    parts = (data[start : start + 70] for start in range(0, len(data), 70))
    answer = client.post("/v1/import", content=parts, headers=admin)
    assert (answer.status_code, answer.json()["added"]) == (200, len(trials))
    assert client.app.state.service.store.trials(scope) == trials


def test_an_import_that_no_disk_holds_is_refused_as_such(client, admin, monkeypatch):
    async def fails(request, file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(imports, "_receive", fails)
    answer = client.post("/v1/import", content=b"{}", headers=admin)
    assert answer.status_code == 507 and answer.json()["detail"].startswith("the server's disk is full")
