"""Winners timed on each other's shapes, and the benchmark that is made of it."""

from __future__ import annotations

import math

import pytest

from tilewise.db.records import Status, Trial
from tilewise.kernels.spec import Problem
from tilewise.tuner.bench.shapes import bench_shapes, draw_shapes, spread_out
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


def test_spread_out_shapes_are_farther_apart_than_the_first_ones():
    shapes = [{"M": m} for m in (10, 11, 12, 13, 1000, 5)]
    chosen = spread_out(shapes, 3)
    assert len(chosen) == 3
    assert {"M": 1000} in chosen
    assert min(shape_distance(a, b) for a in chosen for b in chosen if a != b) > shape_distance({"M": 10}, {"M": 13})


def test_the_benchmark_of_shapes_judges_only_what_was_not_tuned(bowl, device, store, monkeypatch):
    monkeypatch.setattr("tilewise.tuner.bench.shapes.LEAST_BYTES", 1)
    body = bench_shapes(device, store, bowl.SPEC, shapes=30, tuned=6, held_out=5, trials=12)
    assert (body["shapes"], body["tuned"], len(body["rows"])) == (30, 6, 5)
    assert body["calls"].keys() == {"not_run"}
    assert body["held_out"]["chosen"]["mean"] <= body["held_out"]["default"]["mean"]
    assert 1.0 <= body["held_out"]["chosen"]["mean"] <= 1.15
    assert all(row["match"] in ("nearest", "portfolio") for row in body["rows"])
