"""`bench judge`: the default search on recorded landscapes, and the list of those that decided nothing about it.

No test searches a judged landscape; those here are made by the tests.
"""

import json

import pytest
from places import LANDSCAPES

from tilewise.benchmarks.search import judge
from tilewise.benchmarks.search.judge import bench_judge, landscape_files, landscapes_used_for
from tilewise.cli import main
from tilewise.errors import UsageError
from tilewise.tuner.tuning.loop import DEFAULT_TRIALS


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keep judgements in a file of this test's."""
    monkeypatch.setattr(judge, "RECORD", tmp_path / "judged.json")
    return tmp_path / "judged.json"


@pytest.fixture
def landscape(tmp_path):
    """A landscape of 240 configs: the faster the nearer to x = 7; one in four fails."""

    def write(name, best_us=1.0):
        cache = {}
        for x in range(20):
            for y in range(12):
                time = "RuntimeFailedConfig" if (x + y) % 4 == 2 else best_us * (1 + 0.1 * abs(x - 7) + 0.06 * y) / 1e3
                cache[f"{x},{y}"] = {"x": x, "y": y, "time": time}
        path = tmp_path / name
        path.write_text(json.dumps({"device_name": "RTX", "tune_params_keys": ["x", "y"], "cache": cache}))
        return str(path)

    return write


@pytest.mark.full
def test_a_tuning_with_the_default_budget_is_judged_by_the_whole_space(landscape, kept):
    body = bench_judge([landscape("small.json", 8.0)], seeds=3)
    (row,) = body["landscapes"]
    assert (row["configs"], row["optimum"], row["prior"]) == (240, 8.0, False)
    assert 1 < row["evaluations_to"]["5%"] <= row["evaluations_to"]["2%"] <= row["evaluations_to_p95"]["2%"]
    assert row["evaluations_to_p95"]["2%"] < row["ended"]["trials"] < DEFAULT_TRIALS
    ended = row["ended"]
    assert (ended["tunings"], ended["near"], ended["left_worst"], ended["left_median"]) == (3, 3, 0.0, 0.0)
    assert 2 <= ended["ended_alone"] == ended["ended_alone_near"]


def test_the_command_keeps_its_result_and_says_next_time_when_it_last_looked(landscape, kept, capsys):
    file = landscape("small.json")
    for last in ("never", "20"):  # the year's first digits
        with pytest.raises(SystemExit) as ended:
            main(["bench", "judge", file, "--seeds", "1", "-o", str(kept)])
        assert not ended.value.code
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "small" in line]
        assert line.split("│")[-2].strip().startswith(last)
    body = json.loads(kept.read_text())
    assert body.keys() >= {"command", "date", "device", "clock", "versions"}
    assert body["landscapes"][0]["last_looked_at"] == body["date"][:10]


def test_files_and_folders_may_be_named_and_the_default_are_the_judged_ones(landscape, tmp_path):
    one, other = landscape("one.json"), landscape("other.json")
    assert landscape_files([other]) == [other]
    assert landscape_files([other, str(tmp_path)]) == [other, one]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty holds no landscape; expected files named \*\.json"):
        landscape_files([str(tmp_path / "empty")])
    assert landscape_files([]) == [str(file) for file in landscapes_used_for("judged")]


def test_every_recorded_landscape_is_either_judged_or_used_for_design():
    judged, design = (set(landscapes_used_for(use)) for use in ("judged", "design"))
    assert judged and design and not judged & design
    assert judged | design == set(LANDSCAPES.glob("*.json.gz"))
