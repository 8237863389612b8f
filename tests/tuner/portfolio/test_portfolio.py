"""Portfolios: a few configs for all shapes, and the rule that picks one of them."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.kernels.spec import Axis, Tiling
from tilewise.tuner.portfolio.build import build, tuned
from tilewise.tuner.portfolio.portfolio import portfolio_from_json

SCOPE = Scope(Problem("bowl", {"M": 1}, "float32"), "a1", "Bowl", Clock.MEASURED, "formula 1", 8)
SMALL, MIDDLE, LARGE = ({"TILE": tile} for tile in (1, 2, 3))


def trial(config, time_us, verified=True):
    return Trial(config, Status.CORRECT, time_us=time_us, samples=1, verified=verified)


def shape(m, *trials):
    found = tuned({"M": m}, trials)
    assert found is not None
    return found


SHAPES = [
    shape(10, trial(SMALL, 10.0), trial(MIDDLE, 10.3), trial(LARGE, 30.0)),
    shape(20, trial(SMALL, 10.0), trial(MIDDLE, 12.0), trial(LARGE, 30.0)),
    shape(100, trial(SMALL, 30.0), trial(MIDDLE, 10.0), trial(LARGE, 10.2)),
    shape(200, trial(SMALL, 90.0), trial(MIDDLE, 11.0), trial(LARGE, 10.0)),
    shape(400, trial(SMALL, 90.0), trial(MIDDLE, 11.0), trial(LARGE, 10.0)),
]


def bowl_config(tile):
    return {"TILE": tile, "WIDTH": 64, "fast": True}


def bowl_shapes(bowl, *more):
    """Return shapes whose best tile grows with M; the bowl's default is slow everywhere."""

    def trials(small, large):
        return trial(bowl_config(2), small), trial(bowl_config(8), large), trial(bowl.DEFAULT, 60.0, verified=False)

    small, large = trials(10.0, 20.0), trials(20.0, 10.0)
    return [*(shape(m, *small) for m in (8, 16, 32)), *(shape(m, *large) for m in (256, 512, 1024)), *more]


def test_two_configs_serve_five_shapes_and_the_rule_gives_each_shape_what_suits_those_around():
    portfolio = build(SCOPE, SHAPES)
    assert sorted(config["TILE"] for config in portfolio.configs) == [1, 3]
    assert portfolio.smallest
    values_of_m = (1, 10, 20, 100, 400, 10**9)
    assert [portfolio.configs[portfolio.rule.pick({"M": m})]["TILE"] for m in values_of_m] == [1, 1, 1, 3, 3, 3]


def test_a_shape_is_launched_with_what_is_expected_to_be_fastest_there(bowl):
    portfolio = build(SCOPE, bowl_shapes(bowl), bowl.SPEC)
    for m, tile in ((9, 2), (25, 2), (300, 8), (3000, 8)):
        picks = portfolio.picks(bowl.SPEC, {"M": m}, bowl.TARGET)
        assert picks[0]["TILE"] == tile
        assert len(picks) == len(set(map(str, picks))) == 3  # the two winners and the default


def test_one_large_shape_does_not_make_a_small_one_leave_the_cores_idle(bowl):
    def tiling(config, problem):
        rows = Axis("M", problem.dims["M"], config["TILE"], 1)
        return Tiling((rows, Axis("N", 2**20, 2**20, config["WIDTH"])), 4 * config["WIDTH"], 0)

    spec = dataclasses.replace(bowl.SPEC, default=lambda problem, target: bowl_config(1), tiling=tiling)
    large = [trial(bowl_config(10), 10.0), trial(bowl_config(1), 20.0, verified=False)]
    portfolio = build(SCOPE, [shape(1000, *large)], spec)
    picks = [portfolio.picks(spec, {"M": m}, bowl.TARGET)[0] for m in (900, 8)]
    assert picks == [bowl_config(10), bowl_config(1)]


def test_only_what_was_verified_and_is_fast_somewhere_is_launched(bowl):
    shapes = bowl_shapes(bowl, shape(40, trial(bowl_config(4), 3.0, verified=False), trial(bowl_config(2), 10.0)))
    portfolio = build(SCOPE, shapes, bowl.SPEC)
    assert bowl_config(4) in portfolio.tried
    assert bowl_config(4) not in portfolio.picks(bowl.SPEC, {"M": 40}, bowl.TARGET)


def test_of_many_trials_some_are_kept_slow_ones_as_well():
    many = [trial({"TILE": tile}, 10.0 + tile, verified=tile == 0) for tile in range(1500)]
    portfolio = build(SCOPE, [shape(1, *many), shape(2, *many)])
    assert len(portfolio.costs[0]) == 500
    assert min(portfolio.costs[0].values()) == 1.0
    assert max(portfolio.costs[0].values()) > 100


def test_every_tuned_shape_stays_within_the_factor_by_one_of_the_configs():
    portfolio = build(SCOPE, SHAPES)
    for tuned_shape in SHAPES:
        times = [tuned_shape.times[tuple(sorted(config.items()))] for config in portfolio.configs]
        assert min(times) <= 1.05 * tuned_shape.best


@pytest.mark.parametrize(("slower", "configs"), [(10.5, [MIDDLE]), (10.51, [MIDDLE, SMALL])])
def test_a_config_covers_a_shape_up_to_the_factor_exactly(slower, configs):
    portfolio = build(SCOPE, [shape(10, trial(SMALL, 10.0), trial(MIDDLE, slower)), shape(20, trial(MIDDLE, 10.0))])
    assert sorted(portfolio.configs, key=str, reverse=True) == configs


def test_a_shape_left_out_is_judged_by_its_own_times(bowl):
    portfolio = build(SCOPE, SHAPES)
    assert (portfolio.held_out.shapes, portfolio.held_out.unknown) == (5, 0)
    assert portfolio.held_out.worst == pytest.approx(1.2)  # without M=20, MIDDLE serves M=10 and the rest
    assert portfolio.rule_held_out.worst == pytest.approx(3.0)  # without M=20, M=10 alone is too few for a branch
    with_spec = build(SCOPE, bowl_shapes(bowl), bowl.SPEC)
    assert (with_spec.held_out.shapes, with_spec.held_out.mean) == (6, 1.0)


def test_a_config_never_tried_for_a_shape_does_not_cover_it():
    shapes = [shape(1, trial(SMALL, 5.0)), shape(2, trial(LARGE, 5.0))]
    portfolio = build(SCOPE, shapes)
    assert len(portfolio.configs) == 2
    assert (portfolio.held_out.shapes, portfolio.held_out.unknown) == (0, 2)
    assert portfolio.held_out.mean is None


def test_a_config_that_was_never_verified_is_not_in_a_portfolio():
    shapes = [
        shape(1, trial(SMALL, 5.0), trial(MIDDLE, 5.0, verified=False)),
        shape(2, trial(LARGE, 5.0), trial(MIDDLE, 5.0, verified=False)),
    ]
    assert MIDDLE not in build(SCOPE, shapes).configs


def test_a_shape_without_a_verified_winner_has_no_part():
    assert tuned({"M": 3}, [trial(SMALL, 5.0, verified=False), Trial(LARGE, Status.COMPILE, reason="no")]) is None


def test_a_config_counts_for_a_shape_as_what_it_becomes_there(bowl):
    """TILE=40 becomes 10 in the bowl's space, and the time of that is known."""
    in_space, outside = ({"TILE": tile, "WIDTH": 16, "fast": True} for tile in (10, 40))
    shapes = [shape(1, trial(outside, 5.0), trial(in_space, 5.1)), shape(2, trial(in_space, 5.0))]
    alone = build(SCOPE, [shape(1, trial(outside, 5.0)), shapes[1]])
    assert len(alone.configs) == 2
    portfolio = build(SCOPE, [shape(1, trial(outside, 5.0)), shapes[1]], bowl.SPEC)
    assert portfolio.configs == (outside,)
    assert portfolio.held_out.mean == 1.0


def test_a_portfolio_goes_through_json_whole():
    portfolio = build(SCOPE, SHAPES)
    again = portfolio_from_json(json.loads(json.dumps(portfolio.to_json())))
    assert again.to_json() == portfolio.to_json()
    assert again.rule == portfolio.rule


@pytest.mark.parametrize(
    "change",
    [
        {"rule": {"choice": 7}},
        {"rule": {"choice": True}},
        {"rule": {"product_of": ["K"], "at_most": 3, "below": {"choice": 0}, "above": {"choice": 0}}},
        {"rule": {"product_of": ["M"], "at_most": 1.5, "below": {"choice": 0}, "above": {"choice": 0}}},
        {"rule": {"product_of": ["M"], "at_most": 3, "below": {"choice": 0}}},
        {"configs": []},
        {"configs": [3]},
        {"shapes": [{"M": 1}, {"N": 1}]},
        {"shapes": [{"M": 0}]},
        {"clock": "guessed"},
        {"held_out": {}},
        {"costs": []},
        {"costs": [[1.0]] * 5},
        {"costs": [[[0, -1.0]]] * 5},
        {"costs": [[[7, 1.0]]] * 5},
        {"costs": [[[0, 1.0, 2.0]]] * 5},
        {"costs": [[[0]]] * 5},
        {"costs": [[[0, 0.0]]] * 5},
        {"costs": [[[0, math.inf]]] * 5},
        {"costs": [3] * 5},
        {"proven": [3]},
        {"proven": [True]},
        {"tried": [4]},
        {"version": 1},
        {"version": 3},
    ],
)
def test_a_portfolio_that_cannot_be_is_refused(change):
    with pytest.raises(ValueError, match=r"\w"):
        portfolio_from_json(build(SCOPE, SHAPES).to_json() | change)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"configs": []}, "needs configs, and shapes with the same dimensions"),
        ({"shapes": [], "costs": []}, "needs configs, and shapes with the same dimensions"),
        ({"shapes": [*({"M": m} for m in range(1, 5)), {"N": 5}]}, "shapes with the same dimensions"),
        ({"shapes": [*({"M": m} for m in range(1, 5)), {"M": 5, "N": 5}]}, "shapes with the same dimensions"),
        ({"costs": [[]] * 4}, "the portfolio has 4 rows of costs; expected 5"),
        ({"costs": [[]] * 6}, "the portfolio has 6 rows of costs; expected 5"),
        ({"proven": [0, 3]}, "an index into tried is 3; expected 0 to 2"),
        ({"costs": [[[3, 1.0]], *[[]] * 4], "proven": []}, "an index into tried is 3; expected 0 to 2"),
    ],
)
def test_parts_of_a_portfolio_that_do_not_fit_together_are_named(change, complaint):
    body = build(SCOPE, SHAPES).to_json()
    assert (len(body["shapes"]), len(body["tried"])) == (5, 3)
    with pytest.raises(ValueError, match=complaint):
        portfolio_from_json(body | change)


def test_a_rule_nested_beyond_reason_is_refused():
    rule = {"choice": 0}
    for _ in range(40):
        rule = {"product_of": ["M"], "at_most": 3, "below": rule, "above": {"choice": 0}}
    with pytest.raises(ValueError, match="deep"):
        portfolio_from_json(build(SCOPE, SHAPES).to_json() | {"rule": rule})
