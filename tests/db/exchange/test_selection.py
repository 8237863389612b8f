"""The results that an export has."""

from __future__ import annotations

from tilewise.db.exchange.selection import best_results
from tilewise.db.records import Status


def test_a_problem_without_a_winner_does_not_hide_those_after_it(store, make_scope, make_trial):
    store.record(make_scope(device="A"), [make_trial(None, status=Status.TIMEOUT)])
    store.record(make_scope(device="B"), [make_trial()])
    assert [result.scope.device for result in best_results(store, store.scopes())] == ["B"]
