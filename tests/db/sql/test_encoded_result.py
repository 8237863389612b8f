"""Tests of `SqlStore.encoded_result`: it is the JSON of `lookup`'s result, byte for byte."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tilewise.db.records import Clock, Status

EAST = timezone(timedelta(hours=2))
COMPARED = {"contest": {"tied": True, "chance": 0.875}, "effective_options": {"multibuffer": False}}


def expected(store, scope, source_hash=None) -> bytes | None:
    result = store.lookup(scope.question, source_hash=source_hash)
    text = result and json.dumps(result.to_json(), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text and text.encode()


@pytest.mark.in_part(16)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"config": {"BLOCK_SIZE_N": 256, "alpha": 0.1, "tiny": 1e-7, "layout": 'n"z\\é\n', "multibuffer": True}},
        {"why": 'a "quoted" line\nand \\ another, \x1f \u2028 é 核'},
        {"time_us": 1, "p20_us": 1, "p80_us": 2.0, "low_us": 1e-5, "high_us": 1e22, "samples": 2**62},
        {"method": "cupti", "l2": "cold"},
        {"method": "events"},
        {"ordinal": None},
        {"created": datetime(2026, 11, 20, 15, 41, 7, tzinfo=EAST)},
        {"created": datetime(2026, 11, 20, 15, 41, 7, 120, tzinfo=UTC)},
        {"facts": COMPARED},
        {"facts": {"contest": {"tied": False, "chance": 1.5}}},
        {"facts": {"contest": {"tied": "no"}}},
        {"facts": {"contest": "none"}},
        {"facts": {"note": 'not a "contest"', "contests": 1}},
        {"facts": {"metrics": {"TFLOP/s": 12.5, "é": 3, "no": "number", "lost": None}, "objective": ""}},
        {"facts": {"metrics": {}}},
        {"facts": {"metrics": "none"}},
        {"seconds": 1.23456789},
        {"seconds": 7},
    ],
)
def test_every_field_of_a_winner_is_encoded_as_by_the_records(store, make_scope, make_trial, changes):
    scope = make_scope()
    store.record(scope, [make_trial(**changes), make_trial(None, status=Status.TIMEOUT)])
    assert store.encoded_result(scope.question.key) == expected(store, scope)


@pytest.mark.parametrize(
    "changes",
    [
        {"is_default": True},
        {"is_default": True, "time_us": None, "status": Status.COMPILE},
        {"is_default": False},
    ],
)
def test_the_default_is_encoded_as_by_the_records(store, make_scope, make_trial, changes):
    scope = make_scope()
    store.record(scope, [make_trial(10.5), make_trial(**changes)])
    assert store.encoded_result(scope.question.key) == expected(store, scope)


def test_flags_and_names_are_encoded_as_by_the_records(store, make_scope, make_trial):
    scope = make_scope(
        kernel='my "é" kernel',
        dims={"N": 7, "M": 1, "causal": True, "activation": "ge\\lu"},
        dtype="bfloat16",
        device="NVIDIA H200",
        clock=Clock.MEASURED,
        toolchain='a "b" 1.0, c',
        cores=132,
    )
    store.record(scope, [make_trial()])
    assert store.encoded_result(scope.question.key) == expected(store, scope)


def test_of_several_scopes_the_preferred_one_is_encoded(store, make_scope, make_trial):
    store.record(make_scope(), [make_trial()])
    store.record(make_scope(toolchain="newer"), [make_trial()])
    store.record(make_scope(toolchain="newest", source_hash="b2"), [make_trial()])
    store.record(make_scope(toolchain="nothing verified"), [make_trial(verified=False)])
    question = make_scope().question
    for source_hash, toolchain in ((None, "newest"), ("a1", "newer"), ("b2", "newest")):
        encoded = store.encoded_result(question.key, source_hash=source_hash)
        assert encoded == expected(store, make_scope(), source_hash)
        assert json.loads(encoded)["toolchain"] == toolchain
    store.record(
        make_scope(toolchain="chip", clock=Clock.MEASURED), [make_trial(created=datetime(2020, 1, 1, tzinfo=UTC))]
    )
    assert json.loads(store.encoded_result(question.key))["toolchain"] == "chip"


def test_without_a_winner_there_is_nothing_to_encode(store, make_scope, make_trial):
    scope = make_scope()
    store.record(scope, [make_trial(verified=False), make_trial(None, status=Status.COMPILE)])
    assert store.encoded_result(scope.question.key) is None
    store.record(scope, [make_trial()])
    assert store.encoded_result(scope.question.key, source_hash="b2") is None
    assert store.encoded_result("unknown") is None
