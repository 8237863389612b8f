"""Answers in memory, which stay as fresh as the database when any process writes to it."""

from __future__ import annotations

import asyncio
import gc
import hashlib
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
from tilewise.api.service.answer_cache import POLL_SECONDS, Answer, AnswerCache
from tilewise.api.service.service import Options
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError

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
from tilewise.errors import StoreError
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


# A cache by itself


class Told:
    """A database's signs of writes, one poll after the other, and then nothing more."""

    def __init__(self, *told, is_quick=True):
        self._told, self.is_quick, self.polls, self.is_closed = iter(told), is_quick, 0, False

    def poll(self):
        self.polls += 1
        told = next(self._told, ())
        if isinstance(told, Exception):
            raise told
        return told

    def close(self):
        self.is_closed = True


ONE, OTHER = Answer.of(b"one"), Answer.of(b"another")
OF_ONE = len(b"/1") + len(b"one") + 530


def test_a_tag_is_of_the_body_and_quoted():
    assert ONE.tag == b'"%s"' % hashlib.blake2b(b"one", digest_size=9).hexdigest().encode()
    assert ONE.fits(ONE.tag) and ONE.fits(b"%s, %s" % (OTHER.tag, ONE.tag)) and ONE.fits(b" * ")
    assert not ONE.fits(OTHER.tag) and not ONE.fits(ONE.tag[1:-1]) and not ONE.fits(b"")


def test_the_database_is_asked_once_a_turn_of_the_event_loop():
    async def ask():
        changes = Told()
        cache = AnswerCache(changes, 10_000)
        assert [cache.find(b"/1"), cache.find(b"/1"), changes.polls] == [None, None, 1]
        await asyncio.sleep(0)
        cache.follow()
        assert changes.polls == 2
        cache.follow()
        assert (changes.polls, cache.generation) == (2, 0)
        await cache.catch_up()
        assert changes.polls == 3
        await cache.close()
        assert changes.is_closed

    asyncio.run(ask())


@pytest.mark.parametrize(("told", "left"), [((), 2), (["q"], 1), (["q", "q", "unknown"], 1), (None, 0)])
def test_a_write_drops_the_answers_of_its_questions(told, left):
    async def ask():
        cache = AnswerCache(Told((), told), 10_000)
        cache.find(b"/1")
        cache.keep(b"/1", "q", ONE, read_at=0)
        cache.keep(b"/2", "other", ONE, read_at=0)
        await asyncio.sleep(0)
        assert (cache.find(b"/1") == ONE, cache.find(b"/2") == ONE) == (left > 1, left > 0)
        assert (len(cache), cache.size, cache.generation) == (left, left * OF_ONE, 0 if told == () else 1)
        cache.keep(b"/3", "q", ONE, read_at=0)
        assert (cache.find(b"/3") == ONE) == (told == ())  # it was read before the write

    asyncio.run(ask())


@pytest.mark.parametrize(("most", "left"), [(2 * OF_ONE, [b"/1", b"/2"]), (2 * OF_ONE - 1, [b"/2"]), (0, [])])
def test_the_oldest_answers_make_room_for_new_ones(most, left):
    async def ask():
        cache = AnswerCache(Told(), most)
        cache.keep(b"/1", "q", ONE, read_at=0)
        cache.keep(b"/2", "q", ONE, read_at=0)
        assert [target for target in (b"/1", b"/2") if cache.find(target)] == left
        assert (len(cache), cache.size, cache._targets) == (
            len(left),
            len(left) * OF_ONE,
            {"q": tuple(left)} if left else {},
        )

    asyncio.run(ask())


def test_a_kept_answer_is_not_counted_twice():
    async def ask():
        cache = AnswerCache(Told(), 10_000)
        for answer in (ONE, OTHER):
            cache.keep(b"/1", "q", answer, read_at=0)
        assert (cache.find(b"/1"), len(cache), cache.size) == (ONE, 1, OF_ONE)

    asyncio.run(ask())


def test_the_first_spelling_of_a_question_makes_room_for_a_ninth():
    async def ask():
        cache = AnswerCache(Told(), 100_000)
        targets = [b"/%d" % number for number in range(9)]
        for target in targets[:8]:
            cache.keep(target, "q", ONE, read_at=0)
        assert cache._targets == {"q": tuple(targets[:8])}
        cache.keep(targets[8], "q", ONE, read_at=0)
        assert cache._targets == {"q": tuple(targets[1:])}
        assert (len(cache), cache.size, cache.find(targets[0])) == (8, 8 * OF_ONE, None)

    asyncio.run(ask())


def test_a_slow_database_is_polled_and_drops_all_while_it_fails(monkeypatch):
    monkeypatch.setattr(answer_cache, "POLL_SECONDS", 0.001)

    async def ask():
        changes = Told((), StoreError("it is gone"), ["q"], is_quick=False)
        cache = AnswerCache(changes, 10_000)
        for target, question in ((b"/1", "q"), (b"/2", "other")):
            cache.keep(target, question, ONE, read_at=0)
        assert cache.find(b"/1") == ONE
        assert changes.polls == 0  # a look-up does not wait for it
        await until(lambda: cache.generation == 1)
        assert len(cache) == 0
        for target, question in ((b"/1", "q"), (b"/2", "other")):
            cache.keep(target, question, ONE, read_at=1)
        await until(lambda: cache.generation == 2)
        assert (cache.find(b"/1"), cache.find(b"/2")) == (None, ONE)
        await cache.close()
        polls = changes.polls
        await asyncio.sleep(0.01)
        assert (changes.polls, changes.is_closed) == (polls, True)

    async def until(is_so):
        async with asyncio.timeout(20):
            while not is_so():
                await asyncio.sleep(0)

    asyncio.run(ask())


def test_a_slow_database_is_left_alone_between_two_polls(monkeypatch):
    monkeypatch.setattr(answer_cache, "POLL_SECONDS", 3600.0)

    async def ask():
        changes = Told(["q"], is_quick=False)
        cache = AnswerCache(changes, 10_000)
        cache.keep(b"/1", "q", ONE, read_at=0)
        await asyncio.sleep(0.05)
        assert (cache.find(b"/1"), changes.polls) == (ONE, 0)
        await cache.catch_up()  # as after a write of this process
        assert (cache.find(b"/1"), changes.polls) == (None, 1)
        await asyncio.sleep(0.05)
        assert changes.polls == 1
        await cache.close()

    asyncio.run(ask())
