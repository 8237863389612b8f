"""The results that an export has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tilewise.db.exchange.selection import Selection, best_results
from tilewise.db.records import Clock, Status
from tilewise.errors import UsageError


def test_a_problem_without_a_winner_does_not_hide_those_after_it(store, make_scope, make_trial):
    store.record(make_scope(device="A"), [make_trial(None, status=Status.TIMEOUT)])
    store.record(make_scope(device="B"), [make_trial()])
    assert [result.scope.device for result in best_results(store, store.scopes())] == ["B"]


def test_of_winners_as_recent_as_each_other_the_first_seen_is_kept(store, make_scope, make_trial):
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    for toolchain in ("first", "second"):
        store.record(make_scope(toolchain=toolchain), [make_trial(created=moment)])
    assert [result.scope.toolchain for result in best_results(store, store.scopes())] == ["first"]


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ({}, {"clock": Clock.MEASURED}, "second"),
        ({"clock": Clock.MEASURED}, {}, "first"),
        ({}, {}, "second"),  # the later winner
    ],
)
def test_measured_goes_before_modelled_and_later_before_earlier(store, make_scope, make_trial, first, second, chosen):
    store.record(make_scope(toolchain="first", **first), [make_trial(5.0)])
    store.record(make_scope(toolchain="second", **second), [make_trial(9.0)])
    assert [result.scope.toolchain for result in best_results(store, store.scopes())] == [chosen]


def test_unverified_configs_are_taken_only_where_asked_and_where_none_is_verified(store, make_scope, make_trial):
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    trials = [
        make_trial(None, status=Status.COMPILE),
        make_trial(7.0, verified=False),
        make_trial(3.0, verified=False, created=moment + timedelta(days=9)),
        make_trial(5.0, verified=False),
    ]
    store.record(make_scope(toolchain="fast"), trials)
    assert best_results(store, store.scopes()) == []
    [result] = best_results(store, store.scopes(), unverified=True)
    assert result.winner == trials[2]
    store.record(make_scope(toolchain="sure"), [make_trial(9.0, created=moment)])
    [result] = best_results(store, store.scopes(), unverified=True)
    assert result.scope.toolchain == "sure"


@pytest.mark.parametrize(("problems", "more"), [(2, ""), (4, ""), (5, " and 1 more"), (7, " and 3 more")])
def test_a_file_of_one_problem_names_the_first_four_of_several(store, make_scope, make_trial, problems, more):
    for number in range(problems):
        store.record(make_scope(device=f"part{number}"), [make_trial()])
    with pytest.raises(UsageError) as refused:
        Selection(store, list(store.scopes())).single_scope("t4")
    message = str(refused.value)
    assert f"but {problems} match: " in message
    assert message.count("part") == min(4, problems)
    assert f"{more}; choose one with" in message and ("more" in message) is bool(more)


def test_the_scope_of_a_single_problem_is_the_one_that_answers_else_the_last(store, make_scope, make_trial):
    store.record(make_scope(toolchain="old"), [failed := make_trial(None, status=Status.TIMEOUT)])
    store.record(make_scope(toolchain="new"), [failed])
    assert Selection(store, list(store.scopes())).single_scope("t4").toolchain == "new"
    store.record(make_scope(toolchain="old"), [make_trial()])
    assert Selection(store, list(store.scopes())).single_scope("t4").toolchain == "old"
