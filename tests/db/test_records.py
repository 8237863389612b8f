"""Tests of problems, and of the keys under which records are stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewise.db.records import ITEM_BYTES, Clock, Problem, Question, Result, Scope, Status, Trial, digest, shape_text

PLAIN = Problem("attention", {"M": 1000, "N": 64}, "float16")
CAUSAL = Problem("attention", {"M": 1000, "N": 64}, "float16", {"CAUSAL": True, "ACT": "gelu"})


def test_a_shape_holds_dimensions_and_flags():
    assert Problem.of("attention", {"M": 1000, "CAUSAL": True, "N": 64, "ACT": "gelu"}, "float16") == CAUSAL
    assert dict(CAUSAL.shape) == {"M": 1000, "N": 64, "CAUSAL": True, "ACT": "gelu"}
    assert CAUSAL.resized({"M": 8, "N": 8}).flags == CAUSAL.flags
    assert shape_text(CAUSAL.shape) == "M=1000,N=64,CAUSAL=True,ACT=gelu"


def test_problems_and_questions_are_formatted_in_one_way():
    assert str(Question(PLAIN, "NVIDIA H200")) == "attention M=1000,N=64 float16 on NVIDIA H200"
    assert str(Problem("landscape", {}, "recorded")) == "landscape recorded"


def test_without_flags_keys_are_those_of_kernel_dimensions_and_dtype():
    dims = {"M": 1000, "N": 64}
    assert Question(PLAIN, "H200").key == digest(["attention", dims, "float16", "H200"])
    scope = Scope(PLAIN, "a1", "H200", Clock.MEASURED, "t", 132)
    assert scope.key == digest(["attention", "a1", dims, "float16", "H200", "measured", "t", 132])


def test_different_flags_make_a_different_problem():
    keys = {Question(problem, "H200").key for problem in (PLAIN, CAUSAL, Problem("attention", PLAIN.dims, "float16"))}
    assert len(keys) == 2


SCOPE = Scope(Problem("row_reduce", {"M": 8}, "float16"), "a1", "NVIDIA H200", Clock.MEASURED, "triton 3.6.0", 132)


def test_a_result_shows_what_is_known_and_nothing_else():
    winner = Trial({"B": 1}, Status.CORRECT, time_us=4.0, samples=30, verified=True, why="fits")
    default = replace(winner, config={"B": 2}, time_us=10.0)
    counts = {Status.CORRECT: 2, Status.COMPILE: 3}
    result = Result(SCOPE, winner, default, counts, 1.23456)
    shown = result.to_json()
    assert (shown["seconds"], shown["samples"], shown["why"], shown["verified"]) == (1.235, 30, "fits", True)
    assert (shown["trials"]["total"], shown["trials"]["compile"], shown["trials"]["timeout"]) == (5, 3, 0)
    assert shown["tuned_at"] == winner.created.isoformat()
    assert not {"p20_us", "p80_us", "low_us", "high_us", "evaluations_to_best"} & shown.keys()
    assert result.speed_up == 2.5
    assert shown["distance"] == 0.0
    assert "distance" not in replace(result, distance=None).to_json()
    near = replace(result, distance=1.5, winner=replace(winner, ordinal=0, p20_us=3.5, p80_us=4.5)).to_json()
    assert (near["distance"], near["evaluations_to_best"], near["p20_us"], near["p80_us"]) == (1.5, 0, 3.5, 4.5)


def test_a_result_without_a_winner_shows_no_config_and_no_time():
    result = Result(SCOPE, None, None, {}, 0.0)
    shown = result.to_json()
    assert (shown["config"], shown["verified"], shown["default"], shown["trials"]["total"]) == (None, False, None, 0)
    assert not {"time_us", "samples", "why", "tuned_at"} & shown.keys()
    assert result.speed_up is None
    unverified = Result(SCOPE, Trial({"B": 1}, Status.CORRECT), None, {}, 0.0).to_json()
    assert unverified["verified"] is False
    assert not {"time_us", "tuned_at"} & unverified.keys()


def test_items_have_the_bytes_that_they_have_in_torch():
    torch = pytest.importorskip("torch")
    known = {name: size for name, size in ITEM_BYTES.items() if hasattr(torch, name)}
    assert known == {name: getattr(torch, name).itemsize for name in known}
    assert known.keys() >= {"float32", "float16", "bfloat16", "int8", "bool", "float8_e4m3fn"}
