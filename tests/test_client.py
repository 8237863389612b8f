"""Tests of the client against the application itself, for every operation that the application documents."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections import defaultdict
from pathlib import Path
from types import MappingProxyType

import httpx2
import pytest
from generate_client import client_source
from places import ROOT
from starlette.testclient import TestClient

from tilewise.client import Client
from tilewise.errors import NotFound, Unavailable, UnknownKernel, UsageError

QUERY = {"kernel": "row_reduce", "dims": {"M": 1000, "N": 8192}, "dtype": "float32", "device": "Ascend910B4"}
RUFF = Path(sysconfig.get_path("scripts")) / "ruff"

_OF_ENCODED = ("content-encoding", "content-length")
"""Headers of a compressed body, which the application's own client has unpacked."""


class Recorded(httpx2.BaseTransport):
    """A transport that passes requests to a test client's application, and records their paths and parameters."""

    def __init__(self, app: TestClient) -> None:
        self.app, self.seen, self.parameters = app, set(), defaultdict(set)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.add((request.method, request.url.path))
        self.parameters[request.url.path] |= set(request.url.params)
        response = self.app.request(
            request.method, str(request.url), content=request.read(), headers=dict(request.headers)
        )
        plain = {name: value for name, value in response.headers.items() if name not in _OF_ENCODED}
        return httpx2.Response(response.status_code, headers=plain, content=response.content)


@pytest.fixture
def transport(client) -> Recorded:
    return Recorded(client)


@pytest.fixture
def remote(transport, admin) -> Client:
    token = admin["authorization"].removeprefix("Bearer ")
    return Client("http://testserver", token=token, transport=transport)


def test_a_look_up_is_the_service_s_answer_or_its_error(remote, tune, client):
    with pytest.raises(NotFound, match="is not tuned for Ascend910B4"):
        remote.lookup(**QUERY)
    tune()
    assert remote.lookup(**QUERY) == client.get("/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4").json()
    near = remote.lookup("row_reduce", {"M": 1001, "N": 8192}, device="Ascend910B4", match="nearest")
    assert near["match"] == "nearest"
    with pytest.raises(UnknownKernel, match="did you mean row_reduce"):
        remote.lookup("row_redcue", {"M": 1}, device="A")
    with pytest.raises(UsageError, match="N is missing"):
        remote.lookup("row_reduce", {"M": 1}, device="A")
    with pytest.raises(NotFound, match=r"unknown kernel|nothing at"):
        remote.lookup("a/b?c=d", {"M": 1}, device="A")


def test_every_operation_has_a_method(remote, tune, client, transport):
    tune()
    remote.lookup(**QUERY)
    assert remote.lookup_many([QUERY, {**QUERY, "device": "B"}])[1]["config"] is None
    assert "row_reduce" in {kernel["name"] for kernel in remote.kernels()}
    assert remote.devices()
    assert [problem["config"] is None for problem in remote.problems()] == [False]
    assert len(list(remote.trials(limit=1))) == len(list(remote.trials(kernel="row_reduce"))) == 3
    assert [best["time_us"] for best in remote.history(**QUERY)["bests"]] == [31.5]
    with pytest.raises(NotFound, match="cannot be explained: it was tuned with model-1"):
        remote.explain(**QUERY)
    assert b'"format": "tilewise"' in remote.export(device="Ascend910B4")
    job = remote.submit("row_reduce", [QUERY["dims"]], device="model:Ascend910B4", trials=2)
    assert remote.cancel(job["id"])["state"] == "cancelled"
    assert remote.job(job["id"]) == next(remote.jobs())
    assert [event["state"] for event in remote.events(job["id"])] == ["cancelled"]
    assert remote.retry(job["id"])["state"] == "queued"
    assert remote.cancel(job["id"]) == remote.delete_record(job["id"])
    assert list(remote.jobs()) == remote.workers() == []
    kept = remote.keep_helion_record("0" * 64, {"config": "{}"}, "NVIDIA H200")
    assert remote.helion_record("0" * 64) == kept and list(remote.helion_records()) == [kept]
    assert remote.import_results(remote.export())["unchanged"] == 3
    assert remote.readyz() == remote.healthz() == {"status": "ok"}
    assert "tilewise_answers_kept" in remote.metrics()
    assert remote.ready()
    documented = {
        (method.upper(), path.replace("{kernel}", "row_reduce").replace("{number}", "1").replace("{key}", "0" * 64))
        for path, operations in client.get("/openapi.json").json()["paths"].items()
        for method in operations
    }
    assert transport.seen == documented - {("POST", "/v1/work/{operation}")}  # with a token of another right


def test_the_client_is_up_to_date(client):
    """If this fails, run `make client`."""
    source = client_source(client.get("/openapi.json").json())
    command = [RUFF, "format", "--stdin-filename", "src/tilewise/client.py", "-"]
    formatted = subprocess.run(command, input=source, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert formatted == (ROOT / "src/tilewise/client.py").read_text()


def test_any_mapping_and_sequence_can_be_sent(remote, tune):
    tune()
    dims = MappingProxyType(QUERY["dims"])
    assert remote.lookup("row_reduce", dims, "Ascend910B4")["dims"] == dims
    assert remote.lookup_many((MappingProxyType(QUERY | {"dims": dims}),))[0]["config"]
    with pytest.raises(TypeError, match="cannot be sent"):
        remote.lookup_many([{"kernel": object()}])


def test_every_parameter_can_be_given(remote, tune, client, transport):
    tune()
    narrowed = {"kernel": "row_reduce", "dtype": "float32", "device": "Ascend910B4"}
    remote.lookup(**QUERY, match="older", toolchain="model-2")
    remote.history(**QUERY)
    with pytest.raises(NotFound):
        remote.explain(**QUERY)
    list(remote.trials(**narrowed, status="correct", limit=1))
    remote.export(**narrowed)
    list(remote.problems(**narrowed, limit=1))
    for n in (1, 2):
        remote.submit("vector_add", [{"N": n}], device="model:Ascend910B4")
    for n in (1, 2):
        remote.keep_helion_record(f"{n:064}", {"n": n}, "NVIDIA H200", kernel="add")
    kept = remote.helion_records(kernel="add", device="NVIDIA H200", limit=1)
    assert [record["record"] for record in kept] == [{"n": 2}, {"n": 1}]
    found = remote.jobs(limit=1, state="queued", kernel="vector_add", device="model:Ascend910B4")
    assert [job["shapes"] for job in found] == [[{"N": 2}], [{"N": 1}]]
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for parameter in operations.get("get", {}).get("parameters", []):
            if parameter["in"] == "query" and parameter["name"] != "dims":
                assert parameter["name"] in transport.parameters[path.replace("{kernel}", "row_reduce")], path


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (httpx2.Response(200, text="<html>"), "did not return JSON; is it a tilewise server"),
        (httpx2.Response(200, text="[]"), "did not return a JSON object; is it a tilewise server"),
        (httpx2.Response(502, text="bad gateway"), "answered 502"),
        (httpx2.Response(503, json={"detail": "busy\nnow", "type": "urn:tilewise:problem:database"}), "busy now"),
        (httpx2.ConnectError("refused"), "cannot reach http://testserver: refused"),
        (httpx2.ReadTimeout("slow"), "cannot reach"),
    ],
)
def test_a_server_with_an_invalid_response_is_unavailable(answer, expected):
    def handle(request):
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Client("http://testserver", transport=httpx2.MockTransport(handle)) as remote:
        with pytest.raises(Unavailable, match=expected):
            remote.kernels()
        assert not remote.ready()


def test_an_invalid_address_is_refused_at_once():
    with pytest.raises(UsageError, match="is not a server address"):
        Client("tiles.example:8300")


def test_the_client_imports_neither_the_service_nor_the_database():

    code = (
        "import sys, tilewise.client; print([n for n in ('fastapi', 'sqlalchemy', 'tilewise.api') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
