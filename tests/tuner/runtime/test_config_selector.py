"""A choice tells all about itself, the better of two answers wins, and a guess gives way to the default."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from tilewise.db.records import Clock, Problem, Question, Result, Scope, Status, Trial
from tilewise.tuner.runtime import config_selector
from tilewise.tuner.runtime.config_selector import DEFAULT, Choice, ConfigSelector, _choice

PROBLEM = Problem("bowl", {"M": 64}, "float32")
QUESTION = Question(PROBLEM, "Ascend910B4")
CONFIG = {"TILE": 5, "WIDTH": 64, "fast": True}


def result(match="exact", *, time_us=31.457, why="", clock=Clock.MEASURED):
    scope = Scope(PROBLEM, "a1", "Ascend910B4", clock, "CANN 9.1.0", 40)
    winner = Trial(CONFIG, Status.CORRECT, time_us=time_us, verified=True, why=why)
    return Result(scope, winner, None, {}, 1.0, match=match)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "31.46 us measured"),
        ({"clock": Clock.MODELLED, "why": "40 programs"}, "31.46 us modelled, 40 programs"),
        ({"match": "older"}, "31.46 us measured, found with CANN 9.1.0"),
        ({"match": "predicted", "time_us": None, "why": "by the prior"}, "by the prior"),
        ({"match": "nearest", "time_us": None}, ""),
    ],
)
def test_a_choice_says_its_time_clock_and_toolchain_as_far_as_they_matter(given, why):
    choice = _choice(QUESTION, result(**given))
    assert (choice.why, choice.config, choice.match) == (why, CONFIG, given.get("match", "exact"))
    config = "TILE=5, WIDTH=64, fast=True"
    assert str(choice) == f"{QUESTION}: {choice.match}: {config} ({why})"


@pytest.mark.parametrize(
    ("match", "guess"), [("exact", False), ("older", False), ("nearest", True), ("predicted", True), (DEFAULT, True)]
)
def test_only_a_config_that_was_timed_for_the_shape_is_no_guess(match, guess):
    assert Choice(QUESTION, CONFIG, match, "").is_guess is guess


@pytest.fixture
def selector(bowl, tmp_path):
    """A selector without results for the bowl, which knows one device."""
    made = ConfigSelector(bowl.SPEC, str(tmp_path / "none.json"), device="Ascend910B4", explain=True)
    made._local(SimpleNamespace(get_device=lambda: 0))
    return made


def test_an_answer_is_better_only_if_it_relaxes_less_far(selector):
    order = ["exact", "older", "nearest", "predicted", DEFAULT]
    for number, known in enumerate(order):
        better = [selector._is_better(result(match), Choice(QUESTION, CONFIG, known, "")) for match in order[:-1]]
        assert better == [place < number for place in range(len(order) - 1)]


def error(name):
    return type(name, (Exception,), {})("out of memory\nfor a reason")


@pytest.mark.parametrize("name", sorted(config_selector._COMPILE_ERRORS))
def test_a_guess_that_does_not_compile_gives_way_to_the_default_and_says_why(selector, bowl, capsys, name):
    guess = Choice(QUESTION, CONFIG, "predicted", "")
    instead = selector.instead(guess, error(name))
    assert (instead.config, instead.match) == (bowl.DEFAULT, DEFAULT)
    assert instead.why.startswith(f"the guess {CONFIG} does not run here: {name}: out of memory")
    assert selector.choices == {QUESTION.key: instead}
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"tilewise: {QUESTION}: default: TILE=1,")


def test_a_tuned_config_and_another_error_are_the_callers_to_see(selector):
    for match, name in (("exact", "OutOfResources"), ("older", "OutOfResources"), ("predicted", "RuntimeError")):
        assert selector.instead(Choice(QUESTION, CONFIG, match, ""), error(name)) is None
    assert selector.choices == {}


class Source:
    """A source that has answers for some version of the kernel's source."""

    def __init__(self, exact, near, own):
        self._exact, self._near, self._own, self.asked = exact, near, own, []

    def answers(self, question, source_hash):
        return self._exact

    def near(self, question, source_hash, bound):
        self.asked.append((source_hash, bound))
        return self._near if source_hash is None else self._own


@pytest.mark.parametrize(
    ("exact", "near", "own", "told"),
    [([], [], [], False), ([1], [], [], True), ([], [1], [], True), ([1], [1], [1], False), ([], [1], [1], False)],
)
def test_results_of_another_source_alone_are_told_of_once(selector, caplog, exact, near, own, told):
    selector._opened, selector._told_of_source = Source(exact, near, own), False
    for _ in range(2):
        if not selector._told_of_source:
            selector._tell_of_another_source(QUESTION)
    words = (
        "the source of bowl has changed since it was tuned for Ascend910B4, so its results are not used; tune it again"
    )
    assert [record.message for record in caplog.records if "has changed" in record.message] == [words] * told
    assert all(bound == math.inf for _, bound in selector._opened.asked)
