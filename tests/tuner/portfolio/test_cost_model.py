"""The forecast of a config's cost at a shape where it was not timed."""

from __future__ import annotations

import math

import pytest

from tilewise.db.records import Problem
from tilewise.tuner.portfolio.cost_model import CostModel, Observation


def config(tile, fast=True):
    return {"TILE": tile, "WIDTH": 64, "fast": fast}


def forecast_of(bowl, *seen, spec=True):
    return CostModel(
        [Observation(*one) for one in seen],
        Problem("bowl", {"M": 1, "N": 1}, "float32"),
        bowl.TARGET,
        bowl.SPEC if spec else None,
    )


@pytest.fixture(params=[True, False], ids=["with the spec", "without"])
def seen(bowl, request):
    small, large = ({"M": 16}, {"M": 1024})
    return forecast_of(
        bowl,
        (small, config(2), 1.0),
        (small, config(8), 2.0),
        (large, config(2), 2.0),
        (large, config(8), 1.0),
        spec=request.param,
    )


def test_what_was_timed_is_expected_again(seen):
    costs = seen.costs({"M": 16}, [config(2), config(8)])
    assert costs == pytest.approx([0.0, math.log(2)], abs=0.05)


def test_a_shape_is_expected_to_be_like_those_around(seen):
    for m, best in ((20, 2), (800, 8)):
        tiles = (2, 8)
        costs = seen.costs({"M": m}, [config(tile) for tile in tiles])
        assert tiles[costs.index(min(costs))] == best


def test_a_config_like_none_that_was_timed_is_expected_to_cost_twice_the_best(seen):
    (cost,) = seen.costs({"M": 16}, [{"TILE": 2**60, "WIDTH": 2**60, "fast": False}])
    assert cost == pytest.approx(math.log(2), abs=0.01)


def test_with_winners_alone_the_nearest_shapes_winner_is_expected_to_be_best(bowl):
    winners = forecast_of(bowl, ({"M": 16}, config(2), 1.0), ({"M": 1024}, config(8), 1.0))
    for m, tile in ((30, 2), (700, 8)):
        costs = dict(zip((2, 8), winners.costs({"M": m}, [config(2), config(8)]), strict=True))
        assert min(costs, key=costs.__getitem__) == tile


def test_observations_left_out_are_forecast_as_if_they_had_never_been_made(bowl):
    shapes = [{"M": m} for m in (8, 32, 128)]
    seen = [(dims, config(tile), 1 + abs(tile - m) / 8) for m, dims in enumerate(shapes) for tile in (1, 2, 4)]
    without = forecast_of(bowl, *(one for one in seen if one[0] != shapes[1]))
    expected = without.costs(shapes[1], [one[1] for one in seen if one[0] == shapes[1]])
    assert forecast_of(bowl, *seen).left_out([3, 4, 5]) == pytest.approx(expected)


def test_observations_outside_the_kernels_space_say_nothing(bowl):
    odd = [{"TILE": 99, "WIDTH": 64, "fast": True}, {"TILE": 10, "WIDTH": 256, "fast": True}, {"TILE": 2}]
    seen = forecast_of(bowl, *(({"M": 8}, one, 1.0) for one in odd), ({"M": 8}, config(2), 1.0))
    assert [one.config for one in seen.observations] == [config(2)]
    assert forecast_of(bowl, ({"M": 2**62}, config(2), 1.0), ({"K": 8}, config(2), 1.0)).observations == []
    assert forecast_of(bowl).costs({"M": 8}, [config(2)]) == [math.log(2)]


def test_two_configs_that_differ_in_a_word_are_forecast_apart(bowl):
    """TILE and WIDTH are the same; without the word, both would be expected to cost what they cost on average."""
    seen = forecast_of(bowl, ({"M": 16}, config(4, fast=True), 1.0), ({"M": 16}, config(4, fast=False), 4.0))
    assert seen.costs({"M": 16}, [config(4, fast=True), config(4, fast=False)]) == pytest.approx(
        [0.0, math.log(4)], abs=0.1
    )


def one_seen(bowl, cost=1.0, *, m=16, dims=None, config=None):
    """Return the forecast of one timed config, without a spec: what is near it is known by hand."""
    return forecast_of(bowl, ({"M": m} if dims is None else dims, config or {"TILE": 4}, cost), spec=False)


def pulled(distance, cost=1.0):
    """Return the log cost at a distance from one config: its surprise less the noise's share, forgotten with the
    distance."""
    return math.log(2) + math.exp(-distance) / 1.03 * (min(math.log(cost), math.log(4)) - math.log(2))


@pytest.mark.parametrize(
    ("m", "tile", "distance"),
    [
        (16, 4, 0.0),
        (32, 4, 0.1),  # ten doublings of a dimension are a distance of 1
        (16 << 10, 4, 1.0),
        (16, 8, 0.25),  # four of a tile
        (16, 64, 1.0),
        (16 << 10, 64, math.sqrt(2)),
        (16, 0, 0.75),  # 0 counts as half of 1, and -3 as an eighth of 0
        (16, -3, 1.5),
        (16, 0.5, 0.75),
    ],
)
def test_a_config_is_as_alike_as_it_is_near(bowl, m, tile, distance):
    assert one_seen(bowl).costs({"M": m}, [{"TILE": tile}]) == pytest.approx([pulled(distance)])


@pytest.mark.parametrize(("cost", "counted"), [(0.5, 1.0), (1.5, 1.5), (4.0, 4.0), (100.0, 4.0)])
def test_costs_below_the_best_and_above_four_times_it_say_no_more(bowl, cost, counted):
    assert one_seen(bowl, cost).costs({"M": 16}, [{"TILE": 4}]) == pytest.approx([pulled(0.0, counted)])


def test_a_word_that_is_absent_is_a_step_away_and_another_one_two_doublings(bowl):
    """Two different words are two doublings apart, that is 0.5: each of them is the root of 2 less than that."""
    seen = one_seen(bowl, config={"TILE": 4, "VARIANT": "a"})
    costs = seen.costs({"M": 16}, [{"TILE": 4}, {"TILE": 4, "VARIANT": "a"}, {"TILE": 4, "VARIANT": "b"}])
    assert costs == pytest.approx([pulled(0.5 / math.sqrt(2)), pulled(0.0), pulled(0.5 / math.sqrt(2))])
    both = forecast_of(bowl, ({"M": 16}, {"VARIANT": "a"}, 1.0), ({"M": 16 << 40}, {"VARIANT": "b"}, 1.0), spec=False)
    near = both.costs({"M": 16}, [{"VARIANT": "b"}])[0]
    assert near == pytest.approx(pulled(0.5), abs=0.02)


def test_without_observations_or_configs_nothing_is_forecast(bowl):
    assert forecast_of(bowl, spec=False).costs({"M": 1}, [{"TILE": 1}] * 2) == [math.log(2)] * 2
    assert one_seen(bowl).costs({"M": 16}, []) == []
    assert one_seen(bowl).left_out([]) == []
