"""A stopped tuning keeps its finished trials, and the same command resumes it."""

from __future__ import annotations

import signal
import sqlite3
import time
from pathlib import Path

import pytest
from places import LANDSCAPES

WORDS = (
    "tune",
    "row_reduce",
    "-s",
    "M=300,N=600",
    "--device",
    "model:Ascend910B4",
    "--search",
    "random",
    "--trials",
    "8",
)


def stored(tilewise) -> dict[str, float]:
    """Return when each stored config was recorded."""
    file = tilewise.folder / "tiles.db"
    if not file.exists():
        return {}
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        try:
            return dict(connection.execute("select config_key, created from trials"))
        except sqlite3.OperationalError:  # the tables do not exist yet
            return {}


def wait_for_trials(tilewise, process, count: int) -> None:
    end = time.monotonic() + 120
    while len(stored(tilewise)) < count:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "the tuning did not finish enough trials in time"
        time.sleep(0.05)


@pytest.mark.full
def test_a_killed_tuning_resumes_without_repeating_a_trial(tilewise):
    process = tilewise.start(*WORDS)
    wait_for_trials(tilewise, process, 3)
    process.kill()
    process.communicate()
    before = stored(tilewise)
    assert 3 <= len(before) < 8
    result = tilewise.json(*WORDS)["results"][0]
    after = stored(tilewise)
    assert {key: after[key] for key in before} == before  # the old rows are unchanged
    assert result["trials"]["total"] == len(after)
    assert len(after) in (8, 9)  # plus the default, unless the search drew it


@pytest.mark.in_part(1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_tuning_leaves_nothing_running_and_says_how_to_go_on(number, code, tilewise):
    process = tilewise.start(*WORDS)
    wait_for_trials(tilewise, process, 2)
    workers = descendants(process.pid)
    process.send_signal(number)
    end = time.monotonic() + 60
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert workers
    while any(map(is_running, workers)) and time.monotonic() < end:
        time.sleep(0.01)  # processes started by a worker were killed with it, but may take a moment to end
    assert not [pid for pid in workers if is_running(pid)]
    last = err.splitlines()[-1]
    assert last.startswith("tilewise: interrupted; ")
    assert "the same command resumes" in last
    assert int(last.split(";")[1].split()[0]) == len(stored(tilewise))


@pytest.mark.in_part(1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_benchmark_does_not_wait_for_its_replays(number, code, tilewise):
    file = LANDSCAPES / "row_reduce-1000x8192-float32-Ascend910B4-modelled.json.gz"
    process = tilewise.start("bench", "search", str(file), "--budget", "3000", "--seeds", "8")
    end = time.monotonic() + 60
    while not (workers := descendants(process.pid)):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.5)  # each replay takes a minute, so they are still running
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert not [pid for pid in workers if is_running(pid)]


def is_running(pid: int) -> bool:
    """Return whether the process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    """Return all direct and indirect children of a process."""
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
    ]
    return [*children, *(one for child in children for one in descendants(child))]


@pytest.mark.full
def test_two_tunings_into_one_database_lose_nothing(tilewise):
    def words(shape: str) -> tuple[str, ...]:
        return ("tune", "row_reduce", "-s", shape, "--device", "model:Ascend910B4", "--trials", "6", "--json")

    both = [tilewise.start(*words(shape)) for shape in ("M=100,N=512", "M=90,N=700")]
    for process in both:
        _, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
    for shape in ("M=100,N=512", "M=90,N=700"):
        found = tilewise.json("lookup", "row_reduce", "-s", shape, "--device", "Ascend910B4")["results"][0]
        assert found["trials"]["total"] in (6, 7)
