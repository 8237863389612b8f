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


def test_a_file_that_is_missing_is_one_line():
    done = run("search.endings", "gone.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == "tilewise: gone.json is not a usable T4 file or Kernel Tuner cache: No such file or directory\n"
    )


@pytest.mark.full
def test_endings_tunes_with_each_budget(landscape):
    done = run("search.endings", landscape, "--seeds", "2", "--budget", "24", "--budget", "8")
    body = json.loads(done.stdout)
    assert body["command"].endswith("tiny.json --seeds 2 --budget 8 --budget 24")
    assert body["budgets"]["8"]["all"]["trials"] == 8
    assert body["budgets"]["24"]["all"]["near"] == 2
