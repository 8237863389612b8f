"""Winners timed on each other's shapes, and the benchmark that is made of it."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.db.records import Status, Trial
from tilewise.kernels.spec import Problem
from tilewise.tuner.bench.shapes import bench_shapes, draw_shapes, medoids
from tilewise.tuner.crossing import cross
from tilewise.tuner.devices.base import Outcome, Timing
from tilewise.tuner.problem import scope
from tilewise.tuner.search import Budget, Tuning
from tilewise.tuner.shapes import shape_distance


@pytest.fixture
def device(bowl):
    """A bowl whose best TILE grows with the shape: 1 at M=1, one more with each factor of 16."""

    class Slope(bowl.FormulaDevice):
        def evaluate(self, spec, problem, configs, **options):
            best = 1 + math.log(problem.dims["M"], 16)
            for config in configs:
                self.evaluated.append((problem.dims["M"], dict(config)))
                away = abs(config["TILE"] - best) + abs(math.log2(config["WIDTH"]) - 6) + (not config["fast"])
                yield Outcome(Status.CORRECT, timing=Timing(10.0 + away))

    return Slope()


def tune(bowl, device, store, sizes):
    problems = [Problem("bowl", {"M": m}, "float32") for m in sizes]
    for problem in problems:
        Tuning(bowl.SPEC, problem, device, store, budget=Budget(15)).run()
    return problems


def test_each_winner_is_timed_on_every_other_shape_once(bowl, device, store):
    problems = tune(bowl, device, store, (1, 256, 4096))
    winners = [store.result(scope(bowl.SPEC, p, device)).winner.config for p in problems]
    count = cross(bowl.SPEC, problems, device, store)
    for problem in problems:
        tried = [dict(t.config) for t in store.trials(scope(bowl.SPEC, problem, device))]
        assert all(tried.count(dict(config)) == 1 for config in winners)
    crossed = [t for p in problems for t in store.trials(scope(bowl.SPEC, p, device)) if t.search == "crossing"]
    assert len(crossed) == count
    assert cross(bowl.SPEC, problems, device, store) == 0


def test_what_is_good_on_one_shape_is_timed_on_another_though_it_won_on_none(bowl, device, store):
    here, there = (Problem("bowl", {"M": m}, "float32") for m in (16, 256))
    winner, close, slow = ({"TILE": 2, "WIDTH": width, "fast": True} for width in (64, 128, 8))
    known = [(winner, 10.0), (close, 10.5), (slow, 13.0)]
    trials = [Trial(config, Status.CORRECT, time_us=time, verified=True) for config, time in known]
    store.record(scope(bowl.SPEC, here, device), trials)
    store.record(scope(bowl.SPEC, there, device), trials[:1])
    cross(bowl.SPEC, [here, there], device, store)
    crossed = [dict(t.config) for t in store.trials(scope(bowl.SPEC, there, device)) if t.search == "crossing"]
    assert close in crossed
    assert slow not in crossed


def test_a_winner_from_elsewhere_that_is_faster_is_verified_and_becomes_the_best(bowl, device, store):
    here = Problem("bowl", {"M": 1}, "float32")
    own = scope(bowl.SPEC, here, device)
    slow = {"TILE": 10, "WIDTH": 8, "fast": False}
    store.record(own, [Trial(slow, Status.CORRECT, time_us=99.0, verified=True)])
    problems = [here, *tune(bowl, device, store, (256,))]
    device.verified.clear()
    cross(bowl.SPEC, problems, device, store)
    assert device.verified
    assert store.result(own).winner.search == "crossing"


def test_problems_without_a_winner_have_no_part(bowl, device, store):
    (problem,) = tune(bowl, device, store, (1,))
    assert cross(bowl.SPEC, [problem, Problem("bowl", {"M": 7}, "float32")], device, store) == 0


def test_shapes_are_drawn_within_bounds_and_the_same_every_time():
    from tilewise.kernels import registry

    spec = registry.load("softmax")
    drawn = draw_shapes(spec, "float32", 50, seed=3)
    assert drawn == draw_shapes(spec, "float32", 50, seed=3)
    assert drawn != draw_shapes(spec, "float32", 50, seed=4)
    assert len({tuple(dims.values()) for dims in drawn}) == 50
    assert all(1 << 18 <= spec.bytes(Problem("softmax", dims, "float32")) <= 1 << 27 for dims in drawn)


def test_the_shapes_that_are_tuned_are_those_to_which_the_others_are_near():
    crowds = [{"M": m} for middle in (10, 100, 1000) for m in (middle - 1, middle, middle + 1)]
    assert medoids([*crowds, {"M": 1001}], 3) == [{"M": 10}, {"M": 100}, {"M": 1000}]
    assert medoids([{"M": 1}], 3) == [{"M": 1}]


@given(st.lists(st.integers(1, 10**6), min_size=4, max_size=12, unique=True), st.integers(1, 4))
def test_no_exchange_of_one_tuned_shape_brings_the_others_nearer(sizes, count):
    shapes = [{"M": m} for m in sizes]

    def away(chosen):
        return sum(min(shape_distance(shape, other) for other in chosen) for shape in shapes)

    chosen = medoids(shapes, count)
    for leaving, coming in itertools.product(chosen, shapes):
        assert away([*(other for other in chosen if other != leaving), coming]) >= away(chosen) - 1e-6


def test_the_benchmark_of_shapes_judges_only_what_was_not_tuned(bowl, device, store, monkeypatch):
    monkeypatch.setattr("tilewise.tuner.bench.shapes.LEAST_BYTES", 1)
    body = bench_shapes(device, store, bowl.SPEC, shapes=30, tuned=6, held_out=5, trials=12)
    assert (body["shapes"], body["tuned"], len(body["rows"])) == (30, 6, 5)
    assert body["calls"].keys() == {"not_run"}
    assert body["held_out"]["chosen"]["mean"] <= body["held_out"]["default"]["mean"]
    assert 1.0 <= body["held_out"]["chosen"]["mean"] <= 1.15
    assert all(row["match"] in ("nearest", "portfolio") for row in body["rows"])
