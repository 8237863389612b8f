"""The rates that the page shows of a result."""

from __future__ import annotations

import dataclasses

import pytest

from tilewise.api.pages.problem.roofline import Mark, Roofline, roofline
from tilewise.api.pages.problem.roofline_chart import HEIGHT, WIDTH, _decades, _figure, _title, chart
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


def test_the_roofs_of_a_part_are_its_memorys_its_caches_and_its_additions(result):
    """40 cores at 1.65 GHz add 64 numbers of 32 bits in a cycle; both memories have the rates of the part's table."""
    shown = roofline(result, SPEC, [20.0])
    assert shown is not None
    assert shown.roofs == {"global memory": 784.0, "L2 cache": 2100.0}
    assert (shown.peak_gflop_s, shown.highest, shown.time_us) == (pytest.approx(40 * 64 * 1.65), 2100.0, 20.0)
    assert shown.default_gflop_s == pytest.approx(25.0)
    assert dataclasses.replace(shown, default_gb_s=None).default_gflop_s is None


def test_a_factor_of_ten_has_24_marks(result):
    """A million additions in 10,000 us are 0.1 GFLOP/s."""
    times = [10_000 / 10 ** (step / 24) for step in (0, 0.4, 0.6, 1, 24)]
    shown = roofline(result, SPEC, [*times, 0.0])
    assert shown is not None
    found = [(mark.gflop_s, mark.count) for mark in shown.marks]
    assert found == [(pytest.approx(0.1), 2), (pytest.approx(0.1 * 10 ** (1 / 24)), 2), (pytest.approx(1.0), 1)]


SHOWN = Roofline(
    intensity=1.0,
    gb_s=100.0,
    gflop_s=100.0,
    default_gb_s=10.0,
    roofs={"memory": 1000.0, "cache": 12_500.0},
    peak_gflop_s=1250.0,
    peak_of="additions",
    bound=None,
    time_us=1.0,
    marks=[Mark(2.0, 3), Mark(100.0, 6), Mark(1000.0, 1)],
)
"""Rates from 1 to 10,000 GFLOP/s fit the picture: half the lowest, and 8 times the peak."""


def test_a_decade_of_rates_is_67_points_high_and_intensities_are_centred():
    """Of 320 points 12 are left above and 40 below, for four decades; of 620 in width 64 at the left and 12 at the
    right, for a factor of 900."""
    drawn = chart(SHOWN)
    assert drawn is not None
    up = {text: y for y, text in drawn.up}
    assert up == {text: pytest.approx(280 - 67 * n) for n, text in enumerate(("1", "10", "100", "1,000", "10,000"))}
    assert (drawn.winner, drawn.default, drawn.x) == (pytest.approx(146), pytest.approx(213), pytest.approx(336))
    assert [text for _, text in drawn.across] == ["0.1", "1", "10"]
    assert [x for x, _ in drawn.across] == pytest.approx([151.86, 336, 520.14], abs=0.01)


def test_a_bar_is_as_wide_as_its_trials_are_many():
    drawn = chart(SHOWN)
    assert drawn is not None
    assert [dot.half for dot in drawn.dots] == pytest.approx([32, 60, 4 + 56 / 6])
    assert [dot.y for dot in drawn.dots] == pytest.approx([280 - 67 * 0.30103, 146, 79], abs=1e-3)
    assert [dot.title for dot in drawn.dots] == [
        "3 trials at about 2 GFLOP/s",
        "6 trials at about 100 GFLOP/s",
        "1 trial at about 1e+03 GFLOP/s",
    ]


def test_roofs_rise_with_the_intensity_up_to_the_peak():
    """The memory's reaches the peak at an intensity of 1.25, the cache's at 0.1."""
    drawn = chart(SHOWN)
    assert drawn is not None
    assert [roof.name for roof in drawn.roofs] == [
        "memory, 1,000 GB/s",
        "cache, 12,500 GB/s",
        "additions, 1.25 TFLOP/s",
    ]
    assert [roof.path for roof in drawn.roofs] == [
        "64.0,178.0 353.8,72.5",
        "64.0,104.5 151.9,72.5",
        "151.9,72.5 608.0,72.5",
    ]


def test_without_a_peak_the_roofs_end_at_the_edges():
    drawn = chart(dataclasses.replace(SHOWN, peak_gflop_s=None, default_gb_s=None, roofs={"memory": 1250.0}))
    assert drawn is not None and drawn.default is None
    (memory,) = drawn.roofs
    assert memory.points[0] == (pytest.approx(64), pytest.approx(280 - 67 * 1.61979, abs=1e-3))
    assert memory.points[1] == (pytest.approx(336 + 544 * 0.90309 / 2.95424, abs=0.01), pytest.approx(12))  # at 8


@pytest.mark.parametrize("changes", [{"roofs": {}}, {"gflop_s": 0.0}])
def test_a_roofline_without_bounds_or_arithmetic_is_not_drawn(changes):
    assert chart(dataclasses.replace(SHOWN, **changes)) is None


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [(1.0, 100.0, [1.0, 10.0, 100.0]), (0.5, 99.0, [1.0, 10.0]), (1.1, 9.9, []), (0.01, 0.1, [0.01, 0.1])],
)
def test_an_axis_is_marked_at_the_powers_of_ten_within_its_ends(low, high, marks):
    assert _decades(low, high) == pytest.approx(marks)


@pytest.mark.parametrize(
    ("value", "text"), [(0.01, "0.01"), (0.1, "0.1"), (1.0, "1"), (10.0, "10"), (1000.0, "1,000"), (1e6, "1,000,000")]
)
def test_marks_are_plain_figures(value, text):
    assert _figure(value) == text


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 trial at about 1.23e+03 GFLOP/s"), (2, "2 trials at about 1.23e+03 GFLOP/s")]
)
def test_trials_of_a_rate_are_counted_in_words(count, text):
    assert _title(count, 1234.0) == text
