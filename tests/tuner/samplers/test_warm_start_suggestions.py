"""What others recommend, as starts of a search."""

from __future__ import annotations

import pytest

from tilewise.db.records import Clock, Problem, Scope, Status, Suggestion, Trial
from tilewise.tuner.samplers.warm_start import with_suggestions
from tilewise.tuner.space.search_space import enumerate_space
from tilewise.tuner.tuning.loop import Budget, Tuning

PROBLEM = Problem("bowl", {"M": 64}, "float32")
WANTED = Scope(Problem("bowl", {"M": 64}, "float32"), "a", "Bowl", Clock.MODELLED, "t", 8)


@pytest.fixture
def space(bowl):
    return enumerate_space(bowl.SPEC, PROBLEM, bowl.TARGET)


def suggestion(m: int, **config) -> Suggestion:
    return Suggestion(Problem("bowl", {"M": m}, "float32"), "Bowl", config, "a table")


def starts(store, space, won=(), default=None):
    return [space.configs[index] for index in with_suggestions(store, WANTED, space, won, default)]


def test_the_nearest_recommendations_come_after_the_first_winner(store, space):
    far, near = {"TILE": 9, "WIDTH": 8, "fast": True}, {"TILE": 3, "WIDTH": 32, "fast": True}
    store.suggest([suggestion(4096, **far), suggestion(128, **near)])
    assert starts(store, space) == [near, far]
    assert starts(store, space, won=[7, 8]) == [space.configs[7], near, far, space.configs[8]]


def test_what_a_table_leaves_out_is_as_in_the_default(store, space, bowl):
    store.suggest([suggestion(64, TILE=3), suggestion(65, BLOCK=1)])
    assert starts(store, space) == []
    assert starts(store, space, default=bowl.DEFAULT) == [{**bowl.DEFAULT, "TILE": 3}]


def test_a_time_that_nobody_verified_is_a_recommendation(store, space):
    config = {"TILE": 4, "WIDTH": 16, "fast": True}
    other = Scope(Problem("bowl", {"M": 64}, "float32"), "unknown", "Bowl", Clock.MEASURED, "triton autotune cache", 8)
    store.record(other, [Trial(config, Status.CORRECT, time_us=9.0), Trial({"TILE": 1}, Status.CORRECT, time_us=10.0)])
    assert starts(store, space) == [config]


def test_a_search_tries_a_recommended_config_early_and_measures_it(store, space, bowl):
    store.suggest([suggestion(64, **bowl.BEST)])
    device = bowl.FormulaDevice()
    result = Tuning(bowl.SPEC, PROBLEM, device, store, budget=Budget(8)).run()
    assert result.winner.config == bowl.BEST
    assert result.winner.verified
    assert bowl.BEST in device.evaluated[:4]
