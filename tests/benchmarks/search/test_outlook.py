"""The search's forecasts of further gains, compared with the gains that were left."""

import json
import math

import pytest

from tilewise.benchmarks.search.outlook import MOMENTS, bench_outlook


@pytest.fixture
def landscape(tmp_path):
    """A landscape of 240 configs around x = 7, y = 8, smooth except for a term in x mod 3."""
    cache = {}
    for x in range(20):
        for y in (1, 2, 4, 8, 16, 32):
            for mode in ("a", "b"):
                time = 1.0 + 0.1 * abs(x - 7) + 0.2 * abs(math.log2(y) - 3) + 0.3 * (mode == "a") + 0.2 * (x % 3)
                cache[f"{x},{y},{mode}"] = {"x": x, "y": y, "mode": mode, "time": time}
    path = tmp_path / "landscape.json"
    path.write_text(json.dumps({"device_name": "RTX", "tune_params_keys": ["x", "y", "mode"], "cache": cache}))
    return str(path)


def test_every_forecast_is_judged_by_what_was_left(landscape):
    body = bench_outlook([landscape], seeds=3)
    every = body["all"]
    assert every["forecasts"] == 3 * len(MOMENTS) == sum(row["forecasts"] for row in every["reliability"])
    assert 0 <= every["brier"] <= 1
    for row in every["reliability"]:
        if row["forecasts"]:
            assert row["from"] <= row["said"] <= row["to"] and 0 <= row["came"] <= 1
    assert body["moments"]["100"]["left"] <= body["moments"]["20"]["left"]


def test_the_optimum_of_a_smooth_landscape_is_known_to_be_found(landscape):
    """After 100 of 240 configs no gain is left, and the search predicts that."""
    late = bench_outlook([landscape], seeds=3)["moments"]["100"]
    assert late["left"] == 0
    assert late["brier"] < 0.05 and late["expected_gain"] < 0.005
