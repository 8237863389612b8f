"""Hostile requests: no 5xx, no traceback, and one readable line for each error."""

from __future__ import annotations

import json
import random
import re
import socket
from collections import Counter
from http.client import HTTPResponse
from urllib.parse import quote

import hypothesis
import pytest
from asgi import Answer, ask
from hypothesis import strategies as st
from service_fixtures import SCOPE
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from tilewise.api.app import create_app
from tilewise.api.service.service import Options
from tilewise.db.helion_records import HelionRecord, HelionRecords
from tilewise.db.jobs import Jobs, Request
from tilewise.db.sql.sql_store import open_store

MANY = [1_000, pytest.param(10_000, marks=pytest.mark.full)]
EXAMPLES = 25
HELION_KEY = "0" * 64
NEVER_FOUND = {
    "/problems/{key}/explain",
    "/problems/{key}/timeline.svg",
    "/problems/{key}/trace.json",
    "/v1/explain/{kernel}",
}
"""Paths that have nothing for what is stored: only a winner of today's toolchain is explained."""


def check(path: str, answer: Answer) -> None:
    assert 200 <= answer.status < 500, (path, answer)
    assert b"Traceback" not in answer.body
    if answer.status >= 400 and path.startswith("/v1"):
        problem = json.loads(answer.body)
        assert problem["status"] == answer.status
        assert problem["detail"].isprintable()
        assert 0 < len(problem["detail"]) < 700


# Query strings -------------------------------------------------------------------------------------------------------

words = st.text(max_size=12).map(lambda text: quote(text.encode(errors="replace"), safe=""))
wild = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="#"), max_size=12)
escapes = st.binary(max_size=6).map(lambda data: "".join(f"%{byte:02x}" for byte in data))
noise = words | wild | escapes | st.just("%00") | st.just("%ed%a0%80") | st.just("1" * 5000)
numbers = st.integers(-2, 2**66).map(str)
extra = st.lists(st.tuples(noise, noise).map("=".join) | noise, max_size=2)
PROBLEM = {"M": "1000", "N": "8192", "device": "Ascend910B4", "dtype": "float32"}
SCOPES = {"kernel": "row_reduce", "dtype": "float32", "device": "Ascend910B4"}
TABLE = {"status": "correct", "within": "20", "sort": "-BLOCK_SIZE_M", "first": "1"}
SENSIBLE = {
    "/v1/configs/{kernel}": PROBLEM | {"match": "nearest", "toolchain": "model-1"},
    "/v1/history/{kernel}": PROBLEM,
    "/v1/export": SCOPES,
    "/v1/trials": SCOPES | {"dims": "N=8192", "status": "correct", "limit": "1", "after": "1-1"},
    "/v1/helion": {"kernel": "add", "device": "NVIDIA%20H200", "limit": "1", "before": "9"},
    "/v1/jobs": {"limit": "1", "before": "5", "state": "done", "kernel": "row_reduce", "device": "cuda"},
    "/v1/problems": SCOPES | {"dims": "M=1000", "limit": "1", "after": "9-9"},
    "/": SCOPES | {"dims": "M=1000", "before": "9-9"},
    "/jobs": {"kernel": "row_reduce", "dims": "M=1,N=1", "device": "cuda", "before": "9"},
    "/problems/{key}": TABLE | {"across": "BLOCK_SIZE_M", "down": "BLOCK_SIZE_N"},
    "/problems/{key}/trials.csv": TABLE,
    "/problems/{key}/compare": {"a": "0", "b": "1"},
}
"""Valid parameters of the paths that take any."""


def queries(path: str) -> st.SearchStrategy[str]:
    """Draw query strings: parameters of the path, some left out or spoilt, with others appended."""
    sensible = {name: st.just(value) for name, value in SENSIBLE.get(path, {}).items()}
    spoilt = {name: value | noise | numbers for name, value in sensible.items()}
    given = st.fixed_dictionaries(sensible) | st.fixed_dictionaries(spoilt) | st.fixed_dictionaries({}, optional=spoilt)
    pairs = given.map(lambda chosen: [f"{name}={value}" for name, value in chosen.items()])
    return st.tuples(pairs, st.just([]) | extra).map(lambda lists: "&".join(lists[0] + lists[1]))


parts = {
    "kernel": st.sampled_from(["row_reduce", "mine"]) | noise,
    "number": st.just("1") | numbers | noise,
    "key": st.just(SCOPE.key) | st.just(HELION_KEY) | noise,
    "file": st.just("style.css") | noise,
}


def reading() -> list[str]:
    """Return every path that answers GET, with its variable parts in braces."""
    app = create_app("sqlite://")
    mounted = [f"{route.path}/{{file}}" for route in app.routes if isinstance(route, Mount)]
    return sorted(
        {route.path for route in app.routes if isinstance(route, Route) and "GET" in route.methods} | {*mounted}
    )


def got(port: int, path: str) -> Answer:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: tiles\r\nConnection: close\r\n\r\n".encode())
        response = HTTPResponse(connection)
        response.begin()
        return Answer(response.status, response.read())


@pytest.mark.in_part(1)
@pytest.mark.parametrize("database", ["store_url", "postgres_url"])
def test_every_query_string_is_answered(request, database, serve, address, tune_into):
    url = request.getfixturevalue(database)
    tune_into(url)
    tune_into(url, kernel="mine", source_hash="own")
    with open_store(url) as store:
        HelionRecords(store.database).put(HelionRecord(HELION_KEY, "add", "NVIDIA H200", "{}"))
        jobs = Jobs(store.database)
        jobs.cancel(jobs.submit(Request("row_reduce", "a", [{"M": 1, "N": 1}], "float32", "cuda"))[0].id)
    server = serve("--db", url, "--no-jobs", "--log-level", "error")
    port = int(address(server).rpartition(":")[2])
    seen: Counter[tuple[str, int]] = Counter()

    def try_path(path: str) -> None:
        filled = st.fixed_dictionaries({name: parts[name] for name in re.findall(r"{(\w+)}", path)})

        @hypothesis.settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None)
        @hypothesis.given(names=filled, query=queries(path))
        def answers(names, query):
            url = f"{path.format_map(names)}?{query}"
            answer = got(port, url)
            check(url, answer)
            seen[path, answer.status] += 1

        answers()

    for path in reading():
        try_path(path)
    assert {path for path, status in seen if status == 200} == {*reading()} - NEVER_FOUND
    server.terminate()
    assert server.communicate(timeout=120)[1] == ""


# Tokens and bodies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", MANY)
def test_malformed_tokens_are_refused_alike_and_then_slowed_down(client, token_of, many):
    good = token_of("admin")["authorization"].removeprefix("Bearer ")
    drawn = random.Random(0)
    seen: Counter[int] = Counter()

    async def try_all() -> None:
        for _ in range(many):
            text = list(good)
            text[drawn.randrange(len(text))] = chr(drawn.choice([*range(33, 127), *range(161, 256)]))
            token = "".join(text)[: drawn.randrange(1, 60)]
            if token != good:
                headers = {"authorization": f"Bearer {token}".encode("latin-1")}
                answer = await ask(client.app, "POST", "/v1/import", headers=headers, body=b"{}")
                check("/v1/import", answer)
                assert token.encode() not in answer.body or len(token) < 8
                seen[answer.status] += 1

    client.portal.call(try_all)
    assert seen.keys() == {401, 429}
    assert seen[401] < 200


@pytest.mark.parametrize("many", MANY)
def test_malformed_bodies_are_refused_in_one_line(client, tune, store_url, token_of, many):
    tune()
    token = {name: value.encode() for name, value in token_of("admin").items()}
    query = {"queries": [{"kernel": "row_reduce", "dims": {"M": 1, "N": 1}, "device": "Ascend910B4"}]}
    job = {"kernel": "row_reduce", "shapes": [{"M": 1, "N": 1}], "device": "model:Ascend910B4", "trials": 2}
    whole = [
        ("/v1/import", client.get("/v1/export").content),
        *2 * [("/v1/lookup", json.dumps(query).encode())],
        ("/v1/jobs", json.dumps(job).encode()),
    ]
    drawn = random.Random(1)
    seen: Counter[int] = Counter()

    async def send_all(app) -> None:
        for number in range(many):
            path, data = whole[number % len(whole)]
            broken = bytearray(data[: drawn.randrange(len(data) + 1)] if drawn.random() < 0.3 else data)
            for _ in range(drawn.randrange(1, 4) if broken else 0):
                broken[drawn.randrange(len(broken))] = drawn.randrange(256)
            headers = token | {"content-type": b"application/json"}
            answer = await ask(app, "POST", path, headers=headers, body=bytes(broken))
            check(path, answer)
            seen[answer.status] += 1

    with TestClient(create_app(store_url, Options(writes_a_minute=10 * many, run_jobs=False))) as patient:
        patient.portal.call(send_all, patient.app)
    assert seen.keys() <= {200, 201, 400, 404, 422}
    assert seen[400] + seen[422] > many / 2
