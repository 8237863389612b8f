"""The benchmark of untuned shapes: the draw, the choice of shapes to tune, and the evaluation."""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.benchmarks.launch.untuned_shapes import bench_shapes, draw_shapes, medoids
from tilewise.cli import main
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.registry import open_device
from tilewise.tuner.space.problem_checks import shape_distance


@pytest.fixture
def device(bowl):
    """A device on which the best tile grows with the shape: 2 for a short one, 10 for a long one."""

    class ShapedDevice(bowl.FormulaDevice):
        def evaluate(self, spec, problem, configs, **options):
            best = min(10, max(2, round(math.log2(problem.dims["M"]) / 2 - 3)))
            self._time_of = lambda config: bowl.time_us(config | {"TILE": config["TILE"] + 5 - best})
            return super().evaluate(spec, problem, configs, **options)

    return ShapedDevice()


def test_shapes_are_drawn_within_bounds_and_the_same_every_time():
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


@pytest.mark.full
def test_only_shapes_that_were_not_tuned_are_judged_and_they_are_launched_near_their_best(
    bowl, device, store, monkeypatch
):
    monkeypatch.setattr("tilewise.benchmarks.launch.untuned_shapes.LEAST_BYTES", 1)
    body = bench_shapes(device, store, bowl.SPEC, shapes=30, tuned=7, held_out=5, trials=16)
    assert (body["shapes"], body["tuned"], len(body["rows"])) == (30, 7, 5)
    assert body["calls"].keys() == {"not_run"}
    assert all(row["match"] in ("nearest", "portfolio") for row in body["rows"])
    assert 1 <= body["held_out"]["chosen"]["mean"] <= 1.12  # one of five a tile away, which costs 30%
    assert 1 <= body["portfolio"]["held_out"]["mean"] <= 1.2
    assert body["held_out"]["default"]["mean"] > 2


@pytest.mark.parametrize("limit", [[], ["--seconds", "60"], ["--seconds", "1.5"]])
def test_the_recorded_command_has_the_limit_of_time_where_one_was_given(limit, monkeypatch, tmp_path):
    monkeypatch.setattr(
        "tilewise.benchmarks.launch.untuned_shapes.bench_shapes",
        lambda *_, seconds, **options: {"seconds": str(seconds), "calls": {}},
    )
    words = ["bench", "shapes", "max_rows", "--device", "model:Ascend910B4", "--json", *limit]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--db", f"sqlite:///{tmp_path}/shapes.db", "-o", str(tmp_path / "shapes.json")])
    assert ended.value.code == 0
    body = json.loads((tmp_path / "shapes.json").read_text())
    assert body["command"].partition(" --seed 0")[2].split() == limit
    assert float(body["kernels"][0]["seconds"]) == (float(limit[1]) if limit else math.inf)


@pytest.mark.full
def test_untuned_shapes_of_a_real_kernel_are_launched_faster_than_with_the_default_on_the_modelled_part(store):
    with open_device("model:Ascend910B4") as opened:
        body = bench_shapes(opened, store, registry.load("max_rows"), shapes=40, tuned=8, held_out=6, trials=12)
    held = body["held_out"]
    assert held["chosen"]["mean"] < min(1.3, held["default"]["mean"])


@pytest.mark.needs_gpu
def test_every_call_at_an_untuned_shape_is_right_on_a_gpu(store):
    with open_device("cuda") as opened:
        body = bench_shapes(opened, store, registry.load("softmax"), shapes=20, tuned=3, held_out=3, trials=8)
    assert (body["calls"]["calls"], body["calls"]["wrong"]) == (20, [])
    assert len(body["rows"]) == 3
