"""Stored answers follow every write, and one that a write left behind is never given."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from threading import Thread

import pytest
from sqlalchemy import delete, select, text, update

from tilewise.db.records import Status
from tilewise.db.sql import stored_answers
from tilewise.db.sql.encoded_result import FORMAT, encode_row
from tilewise.db.sql.models import answers, scopes
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import NotFound, StoreError

SPOILED = '{"spoiled":true}'


@pytest.fixture(params=["file_url", "postgres_url"])
def store(request):
    with open_store(request.getfixturevalue(request.param)) as opened:
        yield opened


def spoil(store, **values) -> None:
    """Change all stored answers, so that one that is given can be told from one that is encoded when asked for."""
    with store.database.write() as connection:
        connection.execute(update(answers).values(**{"body": SPOILED, **values}))


def asked(store, scope) -> str | None:
    """Return the toolchain and time of the answer, or the spoiled one's text."""
    body = store.encoded_result(scope.question.key, source_hash=scope.source_hash)
    if body is None or body.decode() == SPOILED:
        return body and body.decode()
    answer = json.loads(body)
    return f"{answer['toolchain']} {answer['time_us']}"


def is_current(store) -> bool:
    return not list(stored_answers.stale(store.database)) and stored_answers.complete(store.database) == 0


def test_every_kind_of_write_stores_the_answer_again(store, make_scope, make_trial):
    scope = make_scope(toolchain="t")
    slow, fast, faster = make_trial(30.0), make_trial(20.0), make_trial(10.0)
    steps = [
        (lambda: store.record(scope, [slow]), "t 30.0"),
        (lambda: store.merge([(scope, [fast])]), "t 20.0"),
        (lambda: store.record(scope, [faster]), "t 10.0"),
        (lambda: store.verify(scope, faster.config, agreed=False), "t 20.0"),
        (lambda: store.record(scope, [make_trial(99.0, is_default=True)]), "t 20.0"),
        (lambda: store.retire(scope, store.mark()), None),
        (lambda: store.record(scope, [make_trial(None, status=Status.TIMEOUT)]), None),
        (lambda: store.record(scope, [make_trial(40.0)]), "t 40.0"),
    ]
    for write, expected in steps:
        write()
        assert asked(store, scope) == expected
        assert is_current(store)


def test_a_stored_answer_is_given_without_reading_the_trials(store, make_scope, make_trial):
    scope = make_scope()
    store.record(scope, [make_trial()])
    spoil(store)
    assert asked(store, scope) == SPOILED
    assert store.encoded_result(scope.question.key).decode() == SPOILED
    assert store.encoded_result(scope.question.key, source_hash="b2") is None


def test_a_write_that_stores_no_answer_makes_the_stored_one_stale(store, make_scope, make_trial):
    """A process of an earlier version, which had the database open before the upgrade, writes like this."""
    scope = make_scope(toolchain="t")
    store.record(scope, [make_trial(30.0)])
    with store.database.write() as connection:
        connection.execute(text("UPDATE revision SET number = number + 1"))
        connection.execute(text("UPDATE trials SET time_us = 20, standing_us = 20"))
        connection.execute(update(scopes).values(revision=scopes.c.revision + 1))
    assert asked(store, scope) == "t 20.0"
    assert stored_answers.complete(store.database) == 1
    assert asked(store, scope) == "t 20.0"
    assert is_current(store)


def test_an_answer_of_another_format_is_not_given_and_is_encoded_anew(store, make_scope, make_trial):
    scope = make_scope(toolchain="t")
    store.record(scope, [make_trial(30.0)])
    spoil(store, format=FORMAT + 1)
    assert asked(store, scope) == "t 30.0"
    assert stored_answers.complete(store.database) == 1
    spoil(store, body="{}")
    assert store.encoded_result(scope.question.key) == b"{}"


def test_where_several_scopes_may_answer_none_of_their_stored_answers_decides(store, make_scope, make_trial):
    store.record(make_scope(toolchain="old"), [make_trial(10.0)])
    store.record(make_scope(toolchain="new"), [make_trial(30.0)])
    spoil(store)
    assert asked(store, make_scope()) == "new 30.0"


def test_a_write_that_fails_leaves_the_answer_as_it_was(store, make_scope, make_trial):
    scope = make_scope(toolchain="t")
    store.record(scope, [make_trial(30.0)])
    with pytest.raises(StoreError, match="cannot store the trial"):
        store.merge([(scope, [make_trial(20.0)]), (scope, [make_trial(-1.0)])])
    with pytest.raises(NotFound):
        store.verify(scope, {"BLOCK_SIZE_M": 0}, agreed=True)
    assert asked(store, scope) == "t 30.0"
    assert is_current(store)


def test_a_merge_of_more_scopes_than_one_query_encodes_stores_the_answers_of_all(
    store, make_scope, make_trial, monkeypatch
):
    monkeypatch.setattr(stored_answers, "_SCOPES_AT_ONCE", 2)
    evidence = [(make_scope(dims={"M": size, "N": 8}), [make_trial(float(size))]) for size in range(1, 6)]
    store.merge(evidence)
    with store.database.translated(), store.database.engine.connect() as connection:
        assert len(connection.execute(select(answers.c.scope_id)).all()) == 5
    assert is_current(store)
    with store.database.write() as connection:
        connection.execute(delete(answers))
    assert stored_answers.complete(store.database) == 5
    assert is_current(store)


def test_a_write_during_the_completion_of_an_answer_is_not_hidden_by_it(store, make_scope, make_trial, monkeypatch):
    """The write comes after the trials were read, and before the answer that was made of them is stored."""
    scope = make_scope(toolchain="t")
    store.record(scope, [make_trial(30.0)])
    with store.database.write() as connection:
        connection.execute(delete(answers))
    writer = Thread(target=store.record, args=(scope, [make_trial(20.0)]))

    def encode(row):
        if writer.ident is None:
            writer.start()
            writer.join(0.2)  # it waits for the completion, and so does not end
        return encode_row(row)

    monkeypatch.setattr(stored_answers, "encode_row", encode)
    assert stored_answers.complete(store.database) == 1
    writer.join(10)
    assert asked(store, scope) == "t 20.0"
    assert not list(stored_answers.stale(store.database))


def test_an_answer_that_does_not_match_its_trials_is_named(store, make_scope, make_trial):
    store.record(make_scope(), [make_trial()])
    store.record(make_scope(dtype="float16"), [make_trial()])
    with store.database.write() as connection:
        connection.execute(update(answers).where(answers.c.scope_id == 2).values(body=SPOILED))
    assert list(stored_answers.stale(store.database)) == ["answers 2: it does not match the trials of its scope"]


def test_the_text_of_an_answer_is_that_of_its_format():
    """If this fails, raise `FORMAT`, so that the answers that are stored in the old form are not given any more."""
    scope = ("k", "a1", '{"M":1}', "float32", "Ascend910B4", "modelled", "t", 40)
    created = datetime(2026, 11, 1, tzinfo=UTC)
    winner = ('{"B":8}', 3, "why", 1.5, 1.0, 2.0, 7, created, 1.25, 1.75, "cupti", "cold", "{}")
    row = (*scope, *winner, '{"B":16}', 2.5, 4, 1, 0, 0, 0, 0, 2, 12.3456)
    assert FORMAT == 1
    assert encode_row(row).decode() == (
        '{"kernel":"k","dims":{"M":1},"dtype":"float32","device":"Ascend910B4","clock":"modelled","toolchain":"t",'
        '"source_hash":"a1","cores":40,"match":"exact","distance":0.0,"verified":true,"verified_by":"reference",'
        '"config":{"B":8},"default":{"config":{"B":16},"time_us":2.5},"trials":{"total":7,"correct":4,"constraints":1,'
        '"compile":0,"correctness":0,"runtime":0,"timeout":0,"unmodelled":2},"seconds":12.346,"samples":3,"why":"why",'
        '"time_us":1.5,"p20_us":1.0,"p80_us":2.0,"evaluations_to_best":7,"tuned_at":"2026-11-01T00:00:00+00:00",'
        '"low_us":1.25,"high_us":1.75,"method":"cupti","l2":"cold"}'
    )


def test_a_database_that_may_only_be_read_is_not_completed(file_url, make_scope, make_trial):
    with open_store(file_url) as writer:
        writer.record(make_scope(), [make_trial()])
        spoil(writer, format=FORMAT + 1)
    with open_store(file_url, read_only=True) as reader:
        assert asked(reader, make_scope()) != SPOILED
        with pytest.raises(StoreError, match="read-only"):
            stored_answers.complete(reader.database)
