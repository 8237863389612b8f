"""Winners of other scopes, as configs of this space."""

import math

import pytest
from scopes import changed

from tilewise.db.records import Clock, Problem, Scope, Status, Suggestion, Trial
from tilewise.tuner.samplers.warm_start import neighbour_indices, neighbours, scope_distance, with_suggestions
from tilewise.tuner.space.search_space import Space, enumerate_space
from tilewise.tuner.tuning.loop import Budget, Tuning

SPACE = Space(
    {"ROWS": (1, 4, 16, 64), "WIDTH": (0, 8, 32), "mode": ("a", "b")},
    [{"ROWS": r, "WIDTH": w, "mode": m} for r in (1, 4, 16, 64) for w in (0, 8, 32) for m in "ab" if r * w < 1000],
)
SCOPE = Scope(Problem("k", {"M": 64, "N": 32}, "float32"), "hash", "Ascend910B4", Clock.MODELLED, "tools", 40)


def config(rows, width, mode="a"):
    return {"ROWS": rows, "WIDTH": width, "mode": mode}


def test_distance_counts_ratios_and_what_else_differs():
    def other(**changes):
        return changed(SCOPE, **changes)

    assert scope_distance(SCOPE, SCOPE) == 0
    assert scope_distance(SCOPE, other(dims={"M": 128, "N": 32})) == pytest.approx(
        scope_distance(SCOPE, other(dims={"M": 32, "N": 32}))
    )
    nearest_first = [
        other(dims={"M": 80, "N": 32}),
        other(clock=Clock.MEASURED),
        other(dims={"M": 128, "N": 64}),
        other(device="Ascend910B2"),
        other(dims={"M": 4096, "N": 32}),
    ]
    assert (
        sorted(nearest_first[2:] + nearest_first[:2], key=lambda scope: scope_distance(SCOPE, scope)) == nearest_first
    )


@pytest.mark.parametrize(
    ("changes", "away"),
    [
        ({"dtype": "float16"}, 0.7),
        ({"device": "Ascend910B2"}, 1.5),
        ({"clock": Clock.MEASURED}, 0.3),
        ({"source_hash": "other"}, 0.3),
        ({"dims": {"M": 128, "N": 32}}, math.log(2)),
        ({"dtype": "float16", "clock": Clock.MEASURED, "dims": {"M": 64, "N": 8}}, 0.7 + 0.3 + math.log(4)),
    ],
)
def test_another_dtype_is_as_far_as_twice_the_size_and_distances_add_up(changes, away):
    assert scope_distance(SCOPE, changed(SCOPE, **changes)) == pytest.approx(away)


def test_the_nearest_scopes_winners_come_first_and_failures_not_at_all(store):
    def won(scope, config, status=Status.CORRECT):
        time = 9.0 if status is Status.CORRECT else None
        store.record(scope, [Trial(config, status, time_us=time, verified=time is not None, ordinal=1)])

    won(changed(SCOPE, dims={"M": 4096, "N": 32}), config(64, 8))
    won(changed(SCOPE, dims={"M": 72, "N": 32}), config(4, 8))
    won(changed(SCOPE, dims={"M": 65, "N": 32}), config(1, 8), Status.COMPILE)
    won(changed(SCOPE, kernel="another"), config(1, 0))
    won(changed(SCOPE, dims={"K": 64}), config(1, 32))
    won(SCOPE, config(16, 0))  # the problem's own result does not count as another scope's
    known = neighbours(store, SCOPE)
    assert [neighbour.problem.dims["M"] for neighbour in known] == [72, 4096]
    assert [SPACE.configs[n] for n in neighbour_indices(known, SPACE)] == [config(4, 8), config(64, 8)]
    assert neighbours(store, SCOPE, most=1) == known[:1]


def test_a_neighbour_brings_the_times_of_all_that_ran(store):
    scope = changed(SCOPE, dims={"M": 72, "N": 32})
    ran = Trial(config(4, 8), Status.CORRECT, time_us=9.0, verified=True, ordinal=1)
    slower = Trial(config(1, 8), Status.CORRECT, time_us=12.0, ordinal=2)
    store.record(scope, [ran, slower, Trial(config(64, 8), Status.RUNTIME, reason="it fell", ordinal=3)])
    (neighbour,) = neighbours(store, SCOPE)
    assert sorted((time, dict(at)) for at, time in neighbour.times) == [(9.0, config(4, 8)), (12.0, config(1, 8))]
    assert (neighbour.device, neighbour.winner) == ("Ascend910B4", config(4, 8))
    assert neighbour.away == scope_distance(scope, SCOPE)


def test_a_recorded_landscape_learns_nothing_from_its_own_other_runs(store):
    scope = changed(SCOPE, dims={})
    won = Trial(config(4, 8), Status.CORRECT, time_us=1.0, verified=True)
    store.record(changed(scope, toolchain="another"), [won])
    assert neighbours(store, scope) == []


# Recommended configs, as first candidates of a search ----------------------------------------------------------

BOWL = Problem("bowl", {"M": 64}, "float32")
BOWL_SCOPE = Scope(Problem("bowl", {"M": 64}, "float32"), "a", "Bowl", Clock.MODELLED, "t", 8)


@pytest.fixture
def space(bowl):
    return enumerate_space(bowl.SPEC, BOWL, bowl.TARGET)


def suggestion(m: int, **config) -> Suggestion:
    return Suggestion(Problem("bowl", {"M": m}, "float32"), "Bowl", config, "a table")


def starts(store, space, won=(), default=None):
    return [space.configs[index] for index in with_suggestions(store, BOWL_SCOPE, space, won, default)]


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


def test_a_verified_result_is_a_winner_and_no_recommendation(store, space):
    other = Scope(Problem("bowl", {"M": 72}, "float32"), "unknown", "Bowl", Clock.MEASURED, "tools", 8)
    store.record(other, [Trial({"TILE": 4, "WIDTH": 16, "fast": True}, Status.CORRECT, time_us=9.0, verified=True)])
    failed = Scope(Problem("bowl", {"M": 80}, "float32"), "unknown", "Bowl", Clock.MEASURED, "tools", 8)
    store.record(failed, [Trial({"TILE": 4, "WIDTH": 16, "fast": True}, Status.COMPILE, "no")])
    assert starts(store, space) == []


def test_a_search_tries_a_recommended_config_early_and_measures_it(store, space, bowl):
    store.suggest([suggestion(64, **bowl.BEST)])
    device = bowl.FormulaDevice()
    result = Tuning(bowl.SPEC, BOWL, device, store, budget=Budget(8)).run()
    assert result.winner.config == bowl.BEST
    assert result.winner.verified
    assert bowl.BEST in device.evaluated[:4]
