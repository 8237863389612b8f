"""Answers about kernels that are registered, and about others that have stored results."""

from __future__ import annotations

import pytest

from tilewise.api.service import answers
from tilewise.api.service.answers import LookupRequest
from tilewise.db.records import Clock, Problem, Question, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadDimension, UnknownDtype, UnknownKernel
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.lookup.resolve import Match, NotTuned
from tilewise.tuner.lookup.store_source import StoreSource

CONFIG = {"TILE": 4}
GEMM = {"M": 64, "N": 64, "K": 64}


@pytest.fixture
def source():
    with open_store("sqlite://") as store:
        for toolchain, time_us in (("CANN 9.1.0", 9.0), ("CANN 9.0.0", 7.0)):
            problem = Problem("mine", {"M": 8, "N": 16}, "float32")
            scope = Scope(problem, "b2", "Ascend910B4", Clock.MEASURED, toolchain, 40)
            store.record(scope, [Trial(CONFIG, Status.CORRECT, time_us=time_us, verified=True)])
        yield StoreSource(store)


def ask(source, match=Match.EXACT, toolchain=None, furthest=Match.NEAREST, **dims):
    question = Question(Problem("mine", dims or {"M": 8, "N": 16}, "float32"), "Ascend910B4")
    return answers.relaxed(source, LookupRequest(question, match, toolchain), furthest)


@pytest.mark.parametrize("toolchain", ["CANN 9.1.0", "CANN 9.0.0"])
def test_a_kernel_that_is_not_registered_is_answered_by_its_stored_result(source, toolchain):
    found = ask(source, toolchain=toolchain)
    assert (found.match, found.scope.toolchain, found.winner.config) == ("exact", toolchain, CONFIG)
    assert ask(source).match == "exact"


@pytest.mark.parametrize("match", list(Match))
def test_a_result_of_another_toolchain_is_given_where_older_ones_may_be(source, match):
    if match is Match.EXACT:
        with pytest.raises(NotTuned):
            ask(source, match, "CANN 8.0.0")
    else:
        found = ask(source, match, "CANN 8.0.0")
        assert (found.match, found.scope.kernel) == ("older", "mine")


def test_other_shapes_dimensions_and_names_are_told_apart(source):
    with pytest.raises(NotTuned):
        ask(source, Match.PREDICTED, M=9, N=16)
    with pytest.raises(BadDimension, match=r"^mine has the dimensions M, N; given: 'K, M'$"):
        ask(source, K=1, M=8)
    other = Question(Problem("other", {}, "float32"), "Ascend910B4")
    with pytest.raises(UnknownKernel, match=r"unknown kernel 'other'; .*; no other kernel has stored results"):
        answers.relaxed(source, LookupRequest(other), Match.NEAREST)
    none = Question(Problem("mine", {}, "float32"), "Ascend910B4")
    with pytest.raises(BadDimension, match=r"given: 'none'$"):
        answers.relaxed(source, LookupRequest(none), Match.NEAREST)


def test_a_registered_kernel_relaxes_as_far_as_both_allow(source):
    question = Question(Problem("gemm", GEMM, "float16"), "Ascend910B4")
    with pytest.raises(NotTuned):
        answers.relaxed(source, LookupRequest(question, Match.NEAREST), Match.PORTFOLIO)
    assert answers.relaxed(source, LookupRequest(question, Match.PREDICTED), Match.NEAREST) is None
    assert answers.prediction(source, Question(Problem("mine", {"M": 8}, "float32"), "Ascend910B4")) is None


def test_the_problem_of_a_request_is_checked_against_a_registered_kernel_alone():
    assert answers.problem_of("gemm", GEMM, "float16") == Problem("gemm", GEMM, "float16")
    flagged = answers.problem_of("gemm", {**GEMM, "bias": True, "activation": "none"}, "float16")
    assert (dict(flagged.dims), dict(flagged.flags)) == (GEMM, {"bias": True})
    with pytest.raises(BadDimension):
        answers.problem_of("gemm", {"M": 64, "N": 64}, "float16")
    with pytest.raises(UnknownDtype):
        answers.problem_of("gemm", GEMM, "complex64")
    mine = answers.problem_of("mine", {"X": 3, "causal": True}, "whatever")
    assert (dict(mine.dims), dict(mine.flags), mine.dtype) == ({"X": 3}, {"causal": True}, "whatever")


def test_only_names_are_registered_kernels():
    spec, digest = answers.registered("gemm")
    assert (spec.name, digest) == ("gemm", source_hash(registry.load("gemm")))
    assert answers.registered("mine") is None and answers.registered("mine.py:SPEC") is None


def test_an_exact_answer_of_a_registered_kernel_is_of_its_source(source):
    store, question = source.store, Question(Problem("gemm", GEMM, "float16"), "Ascend910B4")
    trial = Trial({"BLOCK_M": 64}, Status.CORRECT, time_us=1.0, verified=True)
    store.record(Scope(question.problem, "former", "Ascend910B4", Clock.MEASURED, "t", 40), [trial])
    assert answers.exact(store, "gemm", question.key) is None
    assert answers.exact(store, "other name", question.key) is not None
    store.record(
        Scope(question.problem, answers.registered("gemm")[1], "Ascend910B4", Clock.MEASURED, "t", 40), [trial]
    )
    assert answers.exact(store, "gemm", question.key) is not None
