"""Answers in memory, which stay as fresh as the database when any process writes to it."""

from __future__ import annotations

import gc
import json
import logging
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
from starlette.testclient import TestClient

from tilewise.api.app import create_app
from tilewise.api.http.logs import configure
from tilewise.api.service import answer_cache
from tilewise.api.service.answer_cache import POLL_SECONDS
from tilewise.api.service.service import Options
from tilewise.db.sql.sql_store import open_store

ASKED = "/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4"


def sources(client) -> dict[str, float]:
    """Return the number of look-ups answered from each source."""
    lines = client.get("/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("tilewise_answers_total")]
    return {line.split('source="')[1].split('"')[0]: float(line.split()[-1]) for line in counted}


def test_the_second_answer_comes_from_memory_and_is_the_same(client, tune):
    tune()
    first, second = client.get(ASKED), client.get(ASKED)
    assert first.json() == second.json()
    assert first.headers["etag"] == second.headers["etag"]
    assert set(first.headers) == set(second.headers)
    assert sources(client) == {"memory": 1, "database": 1}


@pytest.mark.parametrize("warm", [False, True])
def test_an_entity_tag_saves_the_body(client, tune, warm):
    tune()
    tag = client.get(ASKED).headers["etag"]
    if not warm:
        client.app.state.service.answer_cache._drop(None)
    same = client.get(ASKED, headers={"if-none-match": f'"other", {tag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert client.get(ASKED, headers={"if-none-match": '"other"'}).status_code == 200
    tune(toolchain="model-2")
    assert client.get(ASKED, headers={"if-none-match": tag}).status_code == 200


def test_what_another_process_writes_is_in_the_next_answer(client, tune, store_url):
    tune()
    assert client.get(ASKED).json()["time_us"] == 31.5
    faster = f"""
from dataclasses import replace
from tilewise.db.sql.sql_store import open_store
with open_store({store_url!r}) as store:
    [scope] = store.scopes()
    store.record(scope, [replace(store.result(scope).winner, time_us=30.25)])
"""
    subprocess.run([sys.executable, "-c", faster], check=True, timeout=60)
    assert client.get(ASKED).json()["time_us"] == 30.25


def test_a_write_drops_the_answers_that_it_touched_and_no_others(client, tune, store_url):
    other = ASKED.replace("8192", "4096")
    tune()
    tune(dims={"M": 1000, "N": 4096})
    for url in (ASKED, other, ASKED, other):
        assert client.get(url).status_code == 200
    tune(dims={"M": 1000, "N": 4096}, toolchain="model-2")
    assert client.get(ASKED).json()["toolchain"] == "model-1"
    assert client.get(other).json()["toolchain"] == "model-2"
    assert sources(client) == {"memory": 3, "database": 3}


def test_a_retired_result_is_no_longer_answered(client, tune, store_url):
    tune()
    assert client.get(ASKED).status_code == 200
    with open_store(store_url) as store:
        [scope] = store.scopes()
        store.retire(scope, store.mark())
    assert client.get(ASKED).status_code == 404


def test_what_is_kept_is_bounded(store_url, tune):
    urls = [f"/v1/configs/row_reduce?M={m}&N=8&device=Ascend910B4" for m in range(1, 41)]
    for m in range(1, 41):
        tune(dims={"M": m, "N": 8})
    with TestClient(create_app(store_url, Options(answer_bytes=20_000))) as client:
        bodies = [client.get(url).json() for url in urls]
        cache = client.app.state.service.answer_cache
        assert 5 < len(cache) < 20
        assert cache.size <= 20_000
        assert [client.get(url).json() for url in urls] == bodies
        cache._drop(None)
        assert (len(cache), cache.size, cache._targets) == (0, 0, {})


def test_of_one_question_eight_spellings_are_kept(client, tune):
    tune()
    cache = client.app.state.service.answer_cache
    spellings = [ASKED.replace("row", "%72ow"), *(f"{ASKED}&match={match}" for match in ("exact", "older", "nearest"))]
    spellings += [one.replace("Ascend", "%41scend") for one in spellings] + [ASKED, ASKED.replace("M=", "%4D=")]
    bodies = {client.get(url).content for url in spellings}
    assert (len(spellings), len(bodies), len(cache)) == (10, 1, 8)
    for url in spellings[2:]:
        client.get(url)
    assert sources(client) == {"memory": 8, "database": 10}
    tune(toolchain="model-2")
    assert client.get(ASKED).json()["toolchain"] == "model-2"
    assert len(cache) == 1


def test_what_is_kept_does_not_slow_down_the_garbage_collector(client, tune):
    tune()
    client.get(ASKED)
    cache = client.app.state.service.answer_cache
    gc.collect()
    assert not any(map(gc.is_tracked, (*cache._answers.values(), *cache._targets.values())))


def test_a_relaxed_answer_says_so_and_is_not_kept(client, tune):
    tune()
    near = ASKED.replace("8192", "8190") + "&match=nearest"
    for _ in range(2):
        body = client.get(near).json()
        assert (body["match"], body["verified"], "time_us" in body) == ("nearest", False, False)
        assert 0 < body["distance"] < 0.001
    assert len(client.app.state.service.answer_cache) == 0


def test_another_toolchain_is_older_where_one_is_named(client, tune):
    tune()
    assert client.get(f"{ASKED}&toolchain=model-1").json()["match"] == "exact"
    assert client.get(f"{ASKED}&toolchain=model-2").status_code == 404
    assert client.get(f"{ASKED}&toolchain=model-2&match=older").json()["match"] == "older"


def test_what_was_read_before_a_write_is_not_kept_after_it(client, tune):
    """The write comes between reading and keeping, as can happen on a database that is read from threads."""
    tune()
    service = client.app.state.service
    read = service.store.encoded_result

    def slow(*arguments, **named):
        found = read(*arguments, **named)
        service.answer_cache._drop([])
        return found

    service.store.encoded_result = slow
    assert client.get(ASKED).status_code == 200
    assert len(service.answer_cache) == 0


def test_an_older_database_in_place_of_this_one_is_noticed(client, tune, tmp_path):
    tune()
    assert client.get(ASKED).status_code == 200
    with closing(sqlite3.connect(tmp_path / "tilewise.db")) as database, database:
        database.execute("UPDATE revision SET number = 0")
        database.execute("UPDATE scopes SET toolchain = 'restored'")
        database.execute("UPDATE answers SET body = replace(body, 'model-1', 'restored')")
    assert client.get(ASKED).json()["toolchain"] == "restored"


def test_on_postgresql_answers_follow_within_the_interval(postgres_url, tune_into):
    tune_into(postgres_url)
    with TestClient(create_app(postgres_url)) as client:
        assert client.get(ASKED).json()["toolchain"] == "model-1"
        assert client.get(ASKED).json()["toolchain"] == "model-1"
        tune_into(postgres_url, toolchain="model-2")
        time.sleep(POLL_SECONDS * 5)
        assert client.get(ASKED).json()["toolchain"] == "model-2"
        assert sources(client) == {"memory": 1, "database": 2}


def test_on_postgresql_what_this_process_wrote_is_in_its_next_answer(postgres_url, tune_into, monkeypatch):
    monkeypatch.setattr(answer_cache, "POLL_SECONDS", 3600.0)
    tune_into(postgres_url)
    with TestClient(create_app(postgres_url)) as client:
        assert client.get(ASKED).json()["toolchain"] == "model-1"
        tune_into(postgres_url, toolchain="model-2")
        assert client.portal is not None
        client.portal.call(client.app.state.service.answer_cache.catch_up)
        assert client.get(ASKED).json()["toolchain"] == "model-2"


def test_the_log_has_one_json_object_a_line_with_the_request(capsys, client, tune):
    before = logging.getLogger().handlers[:]
    try:
        configure("debug")
        tune()
        for _ in range(2):
            client.get(ASKED, headers={"x-request-id": "mine", "authorization": "Bearer secret"})
        client.get("/nowhere?token=1", headers={"x-request-id": "not\tmine"})
    finally:
        logging.getLogger().handlers[:] = before
        logging.getLogger().setLevel(logging.WARNING)
    text = capsys.readouterr().err
    lines = [json.loads(line) for line in text.splitlines()]
    access = [line for line in lines if line["logger"] == "tilewise.access"]
    assert [line["message"] for line in access] == [
        "GET /v1/configs/row_reduce 200",
        "GET /v1/configs/row_reduce 200",
        "GET /nowhere 404",
    ]
    assert [line["request_id"] for line in access[:2]] == ["mine", "mine"]
    assert access[2]["request_id"] != "not\tmine"
    assert "secret" not in text
