"""Slow look-ups and batches, as the process answers them, in this one."""

from __future__ import annotations

import json
import re

import pytest

from tilewise.api.processes import lookup_process, worker_process
from tilewise.api.processes.lookup_batch import Malformed
from tilewise.api.processes.lookup_process import _Lookups, _read, serve
from tilewise.api.service.answers import LookupRequest
from tilewise.db.records import Problem, Question
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError
from tilewise.tuner.lookup.resolve import Match, NotTuned

STORED = {"kernel": "row_reduce", "dims": {"M": 1000, "N": 8192}, "device": "Ascend910B4"}
NEAR, ELSEWHERE = STORED | {"dims": {"M": 1001, "N": 8192}}, STORED | {"device": "unheard of"}


@pytest.fixture
def lookups(tune, store_url):
    tune()
    with open_store(store_url, read_only=True) as store:
        yield _Lookups(store)


def request(query, match):
    return LookupRequest(Question(Problem(query["kernel"], query["dims"], "float32"), query["device"]), match)


def body(*queries):
    return json.dumps({"queries": queries}).encode()


@pytest.mark.parametrize(
    ("query", "match", "found"),
    [(STORED, Match.NEAREST, "exact"), (NEAR, Match.NEAREST, "nearest"), (ELSEWHERE, Match.PORTFOLIO, None)],
)
def test_one_answers_as_far_as_the_nearest_shape(lookups, query, match, found):
    answer = lookups.one(request(query, match))
    assert (answer and answer.match) == found
    if answer:
        assert json.loads(answer.body)["match"] == found


def test_where_no_step_answers_it_is_said_that_the_kernel_is_not_tuned(lookups):
    with pytest.raises(NotTuned, match=r"row_reduce .*is not tuned for unheard of"):
        lookups.one_by_any_means(request(ELSEWHERE, Match.PREDICTED))


def test_a_prediction_is_kept_until_others_take_its_place(lookups, monkeypatch):
    made = []
    monkeypatch.setattr(lookup_process, "prediction", lambda source, question: made.append(question.dims["M"]))
    monkeypatch.setattr(lookup_process, "_MOST_PREDICTED", 2)
    for rows in (1, 2, 1, 3, 2, 1):
        question = request(STORED | {"dims": {"M": rows, "N": 8192}}, Match.PREDICTED).question
        assert lookups._prediction(question) is None
    assert made == [1, 2, 3, 1]


def test_a_prediction_is_for_known_devices_only(lookups, monkeypatch):
    monkeypatch.setattr(lookup_process, "prediction", lambda *given: pytest.fail("there is nothing to predict for"))
    assert lookups._prediction(request(ELSEWHERE, Match.PREDICTED).question) is None


def test_a_batch_tells_of_each_query_its_answer_or_why_there_is_none(lookups, monkeypatch):
    monkeypatch.setattr(lookup_process, "_TURN_SECONDS", 600.0)
    wrong = STORED | {"dims": {"M": 1000}}
    queries = [STORED, wrong, ELSEWHERE, {"kernel": "row_reduce"}, NEAR | {"match": "nearest"}]
    part = lookups.batch(body(*queries, STORED | {"match": "portfolio", "device": "unheard of"}), 0)
    assert (part.total, len(part.items), [*part.beyond]) == (6, 6, [5])
    items = [item and json.loads(item) for item in part.items]
    assert [item and item.get("match") for item in items] == ["exact", "exact", "exact", None, "nearest", None]
    assert [item and item["config"] is None for item in items] == [False, True, True, True, False, None]
    assert "is not tuned for unheard of" in items[2]["why"]
    assert items[3]["why"].startswith("the query does not match its schema: ")
    assert [question.device for question in part.unanswered] == ["unheard of"]
    assert part.beyond[5].match is Match.PORTFOLIO


@pytest.mark.parametrize(
    ("changes", "why", "is_unanswered"),
    [
        ({"device": "unheard of"}, "row_reduce .*is not tuned for unheard of", True),
        ({"toolchain": "another"}, "", True),
        ({"kernel": "unheard_of"}, "unheard_of", False),
        ({"kernel": "theirs", "device": "unheard of"}, "theirs .*is not tuned for unheard of", False),
        ({"kernel": "theirs"}, None, False),
        ({"dims": {"M": 1000}}, "N", False),
        ({"dims": {"M": 0, "N": 8192}}, "M", False),
        ({"dtype": "complex"}, "complex", False),
        ({}, None, False),
    ],
)
def test_what_could_be_tuned_here_is_unanswered_and_other_queries_are_not(lookups, tune, changes, why, is_unanswered):
    """Results of `theirs` are stored here, but the kernel is in a file of its users."""
    tune(kernel="theirs")
    query = STORED | changes
    part = lookups.batch(body(query), 0)
    answer = json.loads(part.items[0])
    assert (answer["config"] is None) == (why is not None)
    assert why is None or re.search(why, answer["why"])
    assert [question.kernel for question in part.unanswered] == [query["kernel"]] * is_unanswered


@pytest.mark.parametrize(("seconds", "answered"), [(60.0, 3), (-1.0, 1)])
def test_a_batch_goes_on_after_the_queries_that_were_answered_until_its_turn_is_over(
    lookups, monkeypatch, seconds, answered
):
    monkeypatch.setattr(lookup_process, "_TURN_SECONDS", seconds)
    part = lookups.batch(body(*[STORED] * 5), 2)
    assert (part.total, len(part.items)) == (5, answered)


def test_an_answer_of_another_toolchain_is_not_exact(lookups):
    [item] = lookups.batch(body(STORED | {"toolchain": "another"}), 0).items
    assert json.loads(item)["config"] is None
    [item] = lookups.batch(body(STORED | {"toolchain": "model-1"}), 0).items
    assert json.loads(item)["match"] == "exact"


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        (b"{", "json_invalid", ("body", 0)),
        (b"[" * 100_000, "json_invalid", ("body", 0)),
        (b"{}", "missing", ("body", "queries")),
        (b'{"queries": 1}', "list_type", ("body", "queries")),
        (b'{"queries": [' + b",".join([b"0"] * 10_001) + b"]}", "too_long", ("body", "queries")),
    ],
)
def test_a_batch_that_is_none_is_refused_as_a_whole(lookups, text, kind, place):
    refused = lookups.batch(text, 0)
    assert isinstance(refused, Malformed)
    assert [(fault["type"], fault["loc"]) for fault in refused.faults] == [(kind, place)]
    assert refused.faults[0].keys() <= {"type", "loc", "msg"}


def test_a_query_that_is_none_is_refused_by_its_number():
    first, second = _read(body(STORED, {**STORED, "kernel": 7}))
    assert first.kernel == "row_reduce"
    assert [fault["loc"] for fault in second.faults] == [("body", "queries", 1, "kernel")]


def test_an_error_is_returned_and_a_task_is_given_what_it_needs(monkeypatch):
    class Lookups:
        def one(self, asked):
            raise NotTuned(asked)

        def prepare(self):
            return "prepared"

    monkeypatch.setattr(lookup_process, "_lookups", lambda url, own: {("sqlite://", ()): Lookups()}[url, own])
    assert str(serve("sqlite://", (), "one", "of what")) == "of what"
    assert serve("sqlite://", (), "prepare") == "prepared"


def test_a_process_of_look_ups_is_nice_and_knows_the_users_kernels(tune, store_url, monkeypatch):
    tune()
    done = []
    monkeypatch.setattr(lookup_process.os, "nice", lambda more: done.append(("nice", more)))
    monkeypatch.setattr(lookup_process.Path, "write_text", lambda path, text: done.append((str(path), text)))
    monkeypatch.setattr(lookup_process.registry, "register", lambda place: done.append(("register", place)))
    made = lookup_process._lookups.__wrapped__(store_url, ("a.py:SPEC", "b.py:SPEC"))
    assert done == [
        ("nice", 10),
        ("/proc/self/autogroup", "10"),
        ("register", "a.py:SPEC"),
        ("register", "b.py:SPEC"),
    ]
    with made._store as store:
        assert made.one(request(STORED, Match.EXACT)).match == "exact"
        with pytest.raises(StoreError, match="read-only"):
            store.retire(next(iter(store.scopes())), 1)


@pytest.mark.parametrize("task", ["check", "merge", "one", "batch", "prepare"])
def test_tasks_of_imports_and_of_look_ups_are_told_apart(monkeypatch, task):
    for module in (worker_process.import_process, worker_process.lookup_process):
        monkeypatch.setattr(module, "serve", lambda *given, name=module.__name__: (name.rpartition(".")[2], *given))
    name = "import_process" if task in ("check", "merge") else "lookup_process"
    assert worker_process.serve("sqlite://", ("a.py:SPEC",), task, 1, 2) == (
        name,
        "sqlite://",
        ("a.py:SPEC",),
        task,
        1,
        2,
    )


def test_preparing_builds_the_indexes_of_the_store(lookups, monkeypatch):
    prepared = []
    monkeypatch.setattr(type(lookups._source), "prepare", lambda source: prepared.append(source))
    lookups.prepare()
    assert prepared == [lookups._source]
