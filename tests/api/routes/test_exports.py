"""`GET /v1/export`: a file streamed from one snapshot of the database."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tracemalloc
from contextlib import closing

import pytest

from tilewise.api.routes import exports
from tilewise.db.exchange.native.export_file import export_native, read_native, stream_native
from tilewise.db.records import digest
from tilewise.db.sql.sql_store import SqlStore, open_store
from tilewise.errors import StoreError

SOME = "/v1/export?kernel=row_reduce&dtype=float32&device=Ascend910B4"


@pytest.fixture
def many(tune):
    """Enough stored problems for an export in several pieces."""
    for m in range(1, 61):
        tune(dims={"M": m, "N": 8})


def read(client, path, receive):
    """Return the messages that the application sends for a GET; `receive` is called after each."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    sent = []

    async def wait():
        await asyncio.sleep(3600)

    async def send(message):
        sent.append(message)
        await receive(message)

    client.portal.call(client.app, scope, wait, send)
    return sent


async def nothing(_):
    return


def body_of(sent) -> bytes:
    return b"".join(message.get("body", b"") for message in sent)


def is_whole(sent) -> bool:
    return sent[-1]["type"] == "http.response.body" and not sent[-1].get("more_body")


def test_it_is_the_file_that_the_command_line_writes(client, tune, store_url):
    tune()
    tune(kernel="softmax", dims={"M": 1, "N": 1})
    tune(dtype="float16")
    document = client.get("/v1/export").json()
    with open_store(store_url) as store:
        expected = export_native(store, store.scopes())
    assert document | {"created": ""} == expected | {"created": ""}
    assert document["sha256"] == digest(document["entries"])
    assert list(document) == ["format", "version", "created", "entries", "sha256"]
    [entry] = client.get(SOME).json()["entries"]
    assert (entry["kernel"], entry["dtype"]) == ("row_reduce", "float32")
    assert client.get(f"{SOME}0").json()["entries"] == []
    assert len(read_native(client.get("/v1/export").content).offers) == 3


def test_an_entity_tag_saves_the_file_until_something_is_written(client, tune, store_url):
    tune()
    tag = client.get(SOME).headers["etag"]
    assert tag.startswith('W/"')
    same = client.get(SOME, headers={"if-none-match": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert client.get("/v1/export", headers={"if-none-match": tag}).status_code == 200
    with open_store(store_url) as store:
        [scope] = store.scopes()
        store.retire(scope, store.mark())
    assert client.get(SOME, headers={"if-none-match": tag}).json()["entries"] == []


def test_it_is_of_one_moment_however_long_it_takes(client, many, store_url, tmp_path):
    pieces = 0

    async def overwrite(message):
        nonlocal pieces
        pieces += message["type"] == "http.response.body"
        with closing(sqlite3.connect(tmp_path / "tilewise.db")) as database, database:
            database.execute("UPDATE scopes SET toolchain = ?", [f"after {pieces}"])

    sent = read(client, "/v1/export", overwrite)
    assert is_whole(sent)
    assert pieces > 2
    assert {entry["toolchain"] for entry in json.loads(body_of(sent))["entries"]} == {"model-1"}


def test_a_slow_reader_is_cut_off_and_others_are_served(client, many, monkeypatch, caplog):
    monkeypatch.setattr(exports, "_MAX_SECONDS", 0.2)

    async def stall(message):
        if message.get("body"):
            await asyncio.sleep(60)

    sent = read(client, "/v1/export", stall)
    assert not is_whole(sent)
    assert "an export was cut off: it took over 0.2 s" in caplog.text
    assert "Traceback" not in caplog.text
    monkeypatch.undo()
    for _ in range(6):  # the slow reader's slot is free again
        assert is_whole(read(client, "/v1/export", nothing))


def test_a_database_that_fails_on_the_way_ends_the_connection_before_the_checksum(client, many, monkeypatch, caplog):
    trials, left = SqlStore.trials, iter(range(45))

    def fail_in_the_end(self, scope, **named):
        if next(left, None) is None:
            raise StoreError("/srv/tilewise.db is damaged")
        return trials(self, scope, **named)

    monkeypatch.setattr(SqlStore, "trials", fail_in_the_end)
    sent = read(client, "/v1/export", nothing)
    assert b"entries" in body_of(sent)
    assert b"sha256" not in body_of(sent)
    assert not is_whole(sent)
    assert "an export was cut off: /srv/tilewise.db is damaged" in caplog.text
    assert b"damaged" not in body_of(sent)


def test_memory_holds_a_piece_and_not_the_file(tune, store_url):
    tune()
    with open_store(store_url) as store:
        [scope] = store.scopes()
        for repeats in (1, 700):
            tracemalloc.start()
            size = sum(map(len, stream_native(store, [scope] * repeats)))
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert size > 1_000_000
    assert peak < 500_000
