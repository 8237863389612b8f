"""The benchmark of untuned shapes: the draw, the choice of shapes to tune, and the evaluation."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.benchmarks.launch.untuned_shapes import bench_shapes, draw_shapes, medoids
from tilewise.kernels.spec import Problem
from tilewise.tuner.space.problem_checks import shape_distance


@pytest.fixture
def device(bowl):
    return bowl.FormulaDevice()


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
    monkeypatch.setattr("tilewise.benchmarks.launch.untuned_shapes.LEAST_BYTES", 1)
    body = bench_shapes(device, store, bowl.SPEC, shapes=30, tuned=6, held_out=5, trials=12)
    assert (body["shapes"], body["tuned"], len(body["rows"])) == (30, 6, 5)
    assert body["calls"].keys() == {"not_run"}
    assert body["held_out"]["chosen"]["mean"] <= body["held_out"]["default"]["mean"]
    assert 1.0 <= body["held_out"]["chosen"]["mean"] <= 1.15
    assert all(row["match"] in ("nearest", "portfolio") for row in body["rows"])
