"""The rates that the page shows of a result."""

from __future__ import annotations

import dataclasses

import pytest

from tilewise.api.pages.problem.roofline import roofline
from tilewise.api.pages.problem.roofline_chart import HEIGHT, WIDTH, chart
from tilewise.db.records import Clock, Problem, Result, Scope
from tilewise.kernels import registry

SPEC = registry.load("vector_add")
SCOPE = Scope(Problem("vector_add", {"N": 1_000_000}, "float32"), "a1", "Ascend910B4", Clock.MODELLED, "model-1", 40)


@pytest.fixture
def result(records):
    """A million additions in 20 us, and in 40 us with the default config."""
    winner = dataclasses.replace(records[0], time_us=20.0)
    return Result(SCOPE, winner, dataclasses.replace(winner, time_us=40.0), {}, 1.0)


def test_rates_are_bytes_and_operations_by_time(result):
    """Two float32 are read and one is written for each addition: 12 MB in 20 us are 600 GB/s."""
    shown = roofline(result, SPEC)
    assert shown is not None
    assert shown.intensity == pytest.approx(1 / 12)
    assert (shown.gb_s, shown.default_gb_s) == (pytest.approx(600), pytest.approx(300))
    assert shown.gflop_s == pytest.approx(50)


def test_a_measured_device_and_an_unknown_one_have_no_roofs(result):
    for scope in (dataclasses.replace(SCOPE, clock=Clock.MEASURED), dataclasses.replace(SCOPE, device="elsewhere")):
        shown = roofline(dataclasses.replace(result, scope=scope), SPEC)
        assert shown is not None
        assert (shown.roofs, shown.highest) == ({}, shown.gb_s)


def test_a_matrix_kernels_peak_is_that_of_its_dtype_and_a_gpus_memory_that_of_its_data_sheet(records):
    gemm = registry.load("gemm")
    rates = {}
    for dtype in ("float16", "float8_e4m3fn"):
        problem = Problem("gemm", {"M": 1024, "N": 1024, "K": 1024}, dtype)
        scope = Scope(problem, "a1", "NVIDIA H200", Clock.MEASURED, "triton 3.6", 132)
        shown = roofline(Result(scope, dataclasses.replace(records[0], time_us=20.0), None, {}, 1.0), gemm, [20.0])
        assert shown is not None and shown.peak_of == "products"
        assert list(shown.roofs) == ["memory, by the data sheet"]
        rates[dtype] = shown.peak_gflop_s
    assert rates == {"float16": pytest.approx(989_400), "float8_e4m3fn": pytest.approx(1_978_900)}


def test_every_trial_is_under_the_roofs(result):
    """50,000 trials are a few bars, which together count all of them."""
    times = [20.0 + trial / 1000 for trial in range(50_000)]
    shown = roofline(result, SPEC, times)
    assert shown is not None and shown.peak_of == "additions"
    assert sum(mark.count for mark in shown.marks) == 50_000 and len(shown.marks) < 50
    drawn = chart(shown)
    assert drawn is not None
    assert [roof.name.split(",")[0] for roof in drawn.roofs] == ["global memory", "L2 cache", "additions"]
    assert drawn.winner <= min(dot.y for dot in drawn.dots) + 5 < drawn.default
    assert all(0 < y < HEIGHT for roof in drawn.roofs for _, y in roof.points)
    assert all(0 < x < WIDTH for roof in drawn.roofs for x, _ in roof.points)
    memory = drawn.roofs[0].points
    assert memory[0][0] < drawn.x < memory[1][0] and memory[0][1] > memory[1][1]


def test_nothing_is_drawn_where_no_bound_is_known(result):
    shown = roofline(dataclasses.replace(result, scope=dataclasses.replace(SCOPE, device="elsewhere")), SPEC, [20.0])
    assert shown is not None and chart(shown) is None


def test_without_a_winner_or_the_kernels_spec_there_is_nothing_to_show(result):
    assert roofline(result, None) is None
    assert roofline(dataclasses.replace(result, winner=None), SPEC) is None
