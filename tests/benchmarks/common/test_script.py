"""Benchmarks that are run as modules: each one from end to end on a tiny case, and without its file."""

import json
import subprocess
import sys

import pytest


def run(module, *arguments):
    command = [sys.executable, "-m", f"tilewise.benchmarks.{module}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def landscape(tmp_path):
    """A landscape of 24 configs, all of which run."""
    cache = {f"{x},{y}": {"x": x, "y": y, "time": 1 + abs(x - 2) + 0.1 * y} for x in range(6) for y in range(4)}
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps({"device_name": "RTX", "tune_params_keys": ["x", "y"], "cache": cache}))
    return str(path)


@pytest.mark.parametrize("module", ["search.endings", "search.outlook", "search.priors"])
def test_a_file_that_is_missing_is_one_line(module):
    done = run(module, "gone.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == "tilewise: gone.json is not a usable T4 file or Kernel Tuner cache: No such file or directory\n"
    )


def test_endings_tunes_with_each_budget(landscape):
    done = run("search.endings", landscape, "--seeds", "2", "--budget", "24", "--budget", "8")
    body = json.loads(done.stdout)
    assert body["command"].endswith("tiny.json --seeds 2 --budget 8 --budget 24")
    assert body["budgets"]["8"]["all"]["trials"] == 8
    assert body["budgets"]["24"]["all"]["near"] == 2


def test_outlook_judges_forecasts(landscape):
    body = json.loads(run("search.outlook", landscape).stdout)
    assert body["command"] == "python -m tilewise.benchmarks.search.outlook tiny.json"
    assert 0 <= body["all"]["brier"] <= 1
    assert body["all"]["forecasts"] == body["moments"]["20"]["forecasts"] == body["seeds"]


def test_priors_compares_a_right_and_a_wrong_prior_with_none(landscape):
    body = json.loads(run("search.priors", landscape).stdout)
    (row,) = body["rows"]
    assert (body["command"], row["file"]) == ("python -m tilewise.benchmarks.search.priors tiny.json", "tiny.json")
    assert row["right"] == 1 < row["inverted"] <= 24
    assert row["right"] < min(row["none"], row["meaningless"])


def test_clock_speed_times_the_headline_configs_and_the_default_of_the_kernels_named():
    body = json.loads(run("model.clock_speed", "sum_rows").stdout)
    assert [row["kernel"] for row in body["rows"]] == ["row_reduce"] * 4 + ["sum_rows"]
    assert all(row["ms"] > 0 for row in body["rows"])


def test_clock_speed_refuses_a_kernel_without_shapes():
    done = run("model.clock_speed", "nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("tilewise: no shapes to time nothing at; expected row_reduce, ")
