"""What won elsewhere, as configs of another space."""

import pytest
from scopes import changed

from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.tuner.samplers.warm_start import neighbour_indices, neighbours, scope_distance
from tilewise.tuner.space.nearest_config import closest_index, closest_indices
from tilewise.tuner.space.search_space import Space

SPACE = Space(
    {"ROWS": (1, 4, 16, 64), "WIDTH": (0, 8, 32), "mode": ("a", "b")},
    [{"ROWS": r, "WIDTH": w, "mode": m} for r in (1, 4, 16, 64) for w in (0, 8, 32) for m in "ab" if r * w < 1000],
)
SCOPE = Scope(Problem("k", {"M": 64, "N": 32}, "float32"), "hash", "Ascend910B4", Clock.MODELLED, "tools", 40)


def config(rows, width, mode="a"):
    return {"ROWS": rows, "WIDTH": width, "mode": mode}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (config(16, 8), config(16, 8)),  # itself
        (config(20, 8), config(16, 8)),  # the nearest by ratio
        (config(33, 8), config(64, 8)),
        (config(16, 10, "b"), config(16, 8, "b")),
        (config(64, 32), config(16, 32)),  # not in the space: as near as one may go
        (config(1, 0, "c"), config(1, 0)),
    ],
)
def test_the_closest_config_is_that_of_the_nearest_values(given, found):
    index = closest_index(SPACE, given)
    assert index is not None and SPACE.configs[index] == found


@pytest.mark.parametrize("given", [{}, {"ROWS": 1}, {**config(1, 8), "more": 2}])
def test_a_config_of_other_parameters_is_near_nothing(given):
    assert closest_index(SPACE, given) is None


def test_twins_are_mapped_once_in_order():
    twins = [config(20, 8), {"other": 1}, config(1, 8), config(16, 9)]
    assert [SPACE.configs[n] for n in closest_indices(SPACE, twins)] == [config(16, 8), config(1, 8)]


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


def test_the_nearest_scopes_winners_come_first_and_failures_not_at_all(store):
    def won(scope, config, status=Status.CORRECT):
        time = 9.0 if status is Status.CORRECT else None
        store.record(scope, [Trial(config, status, time_us=time, verified=time is not None, ordinal=1)])

    won(changed(SCOPE, dims={"M": 4096, "N": 32}), config(64, 8))
    won(changed(SCOPE, dims={"M": 72, "N": 32}), config(4, 8))
    won(changed(SCOPE, dims={"M": 65, "N": 32}), config(1, 8), Status.COMPILE)
    won(changed(SCOPE, kernel="another"), config(1, 0))
    won(changed(SCOPE, dims={"K": 64}), config(1, 32))
    won(SCOPE, config(16, 0))  # the problem's own result is no hint from elsewhere
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
