"""Tunings in separate processes: killed in the middle, or in parallel on one database."""

import contextlib
import json
import subprocess
import sys
import time

import pytest
from places import HELPERS

from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError
from tilewise.kernels.spec import Problem

SCRIPT = HELPERS / "bowl.py"
SECONDS = 60


@pytest.fixture
def start(url, tmp_path):
    """A function that starts a tuning, which logs each config as it begins. Running tunings are killed at the end."""
    started = []

    def start(log: str, m: int, *, pause: float, trials: int) -> subprocess.Popen:
        words = [sys.executable, str(SCRIPT), url, str(tmp_path / log), str(m), str(pause), str(trials)]
        started.append(subprocess.Popen(words, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def tried(tmp_path):
    return lambda log: [tuple(json.loads(line).values()) for line in (tmp_path / log).read_text().splitlines()]


@pytest.fixture
def kept(bowl, url):
    """A function that returns the configs stored for a problem, in the order they were recorded."""
    device = bowl.FormulaDevice()

    def kept(m: int) -> list[tuple]:
        with open_store(url, create=False, read_only=True) as store:
            trials = store.trials(device.scope(bowl.SPEC, Problem("bowl", {"M": m}, "float32")))
        return [tuple(trial.config[name] for name in ("TILE", "WIDTH", "fast")) for trial in trials]

    return kept


def finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors


def wait_for(condition) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(StoreError):  # no database yet
            if condition():
                return
        time.sleep(0.02)
    raise TimeoutError("the tuning did not come that far")


def test_a_run_killed_and_resumed_repeats_no_finished_trial(bowl, start, tried, kept):
    killed = start("first", 64, pause=0.03, trials=60)
    wait_for(lambda: len(kept(64)) >= 8)
    killed.kill()
    killed.wait()
    finished = kept(64)
    assert 8 <= len(finished) < 60
    assert tried("first")[: len(finished)] == finished
    assert len(tried("first")) <= len(finished) + 1  # the trial in flight
    finish(start("second", 64, pause=0, trials=60))
    assert not set(finished) & set(tried("second"))
    everything = kept(64)
    assert everything[: len(finished)] == finished
    assert everything[len(finished) :] == tried("second")
    assert len(set(everything) - {tuple(bowl.DEFAULT.values())}) in (59, 60)


def test_two_processes_tuning_into_one_file_lose_nothing(start, tried, kept):
    processes = [start(f"log {m}", m, pause=0, trials=40) for m in (64, 128)]
    for process in processes:
        finish(process)
    for m in (64, 128):
        assert kept(m) == tried(f"log {m}")
        assert len(kept(m)) >= 40


def test_two_processes_tuning_one_problem_end_with_one_truth(start, tried, kept):
    processes = [start(f"log {i}", 64, pause=0.01, trials=25) for i in range(2)]
    for process in processes:
        finish(process)
    assert set(kept(64)) == set(tried("log 0")) | set(tried("log 1"))
    assert len(kept(64)) == len(set(kept(64)))
