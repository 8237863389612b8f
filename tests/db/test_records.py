"""Tests of problems, and of the keys under which records are stored."""

from __future__ import annotations

from tilewise.db.records import Clock, Problem, Question, Scope, digest, shape_text

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
