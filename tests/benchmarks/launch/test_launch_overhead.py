"""The launch benchmark: the implementations that it compares, and the reasons for those that do not run."""

from __future__ import annotations

import sys

import pytest

from tilewise.benchmarks.launch.launch_overhead import bench_runtime
from tilewise.benchmarks.launch.libtuner import filled, libtuned


def test_who_cannot_run_is_named_with_the_reason(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr("tilewise.benchmarks.launch.launch_overhead._has_gpu", lambda: False)
    body = bench_runtime(entries=(3,), calls=100)
    (row,) = body["rows"]
    assert {"constants", "tilewise", "tilewise by name", "tilewise run", "triton.autotune"} <= row.keys()
    assert row["not_run"] == {"flag_gems.libtuner": "TypeError: libentry takes only functions that Triton compiles"}
    assert row["first_call_us"]["guess_match"] in ("nearest", "portfolio")


@pytest.mark.full
def test_a_launch_costs_the_same_however_many_shapes_are_tuned_and_less_than_under_autotune():
    pytest.importorskip("triton")
    few, many = bench_runtime(entries=(1, 3000), calls=2000)["rows"]
    for row in (few, many):
        assert row["tilewise"]["median_us"] < 0.6 * row["triton.autotune"]["median_us"]
        assert row["tilewise"]["added_median_us"] < 2 * row["constants"]["median_us"]
        for way in ("tilewise run", "tilewise by name"):
            assert row[way]["median_us"] < 2 * row["tilewise"]["median_us"]
        assert row["load"]["seconds"] < 0.5
    ours = [row["tilewise"]["median_us"] / row["constants"]["median_us"] for row in (few, many)]
    assert ours[1] < 1.5 * ours[0]
    assert many["load"]["mb"] < 5 * many["file_mb"] + 5


@pytest.mark.full
def test_a_hundred_thousand_shapes_cost_no_more_than_is_promised():
    pytest.importorskip("triton")
    (row,) = bench_runtime(entries=(100_000,), calls=20_000)["rows"]
    assert row["tilewise"]["added_median_us"] <= 2.0
    assert row["tilewise"]["median_us"] <= row["triton.autotune"]["median_us"]
    assert row["load"]["seconds"] < 0.5
    assert row["load"]["mb"] < 100


def test_without_flag_gems_its_tuner_is_missing_by_name(tmp_path, monkeypatch):
    for name in ("GEMS_VENDOR", "FLAGGEMS_CACHE_DIR", "FLAGGEMS_DB_URL"):
        monkeypatch.setenv(name, "kept")  # as it was, afterwards
    monkeypatch.setitem(sys.modules, "flag_gems", None)
    with pytest.raises(ModuleNotFoundError, match="flag_gems"):
        libtuned(None, [], ["M"], tmp_path)


def test_a_cache_is_filled_by_calls_and_not_for_longer_than_allowed():
    called = []
    assert filled(called.append, [1, 2, 3]) == called.append
    assert called == [1, 2, 3]
    with pytest.raises(TimeoutError, match="its cache was filled with 0 of 3 shapes"):
        filled(called.append, [1, 2, 3], seconds=-1)
