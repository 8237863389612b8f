"""`bench serve`: a short run with bounds that hold on a busy machine, and a longer one with those that are promised."""

import json

import pytest

from tilewise.benchmarks.service.serve import bench_serve
from tilewise.cli import main
from tilewise.errors import Unavailable


@pytest.mark.full
def test_the_command_times_every_kind_of_look_up(tmp_path, capsys):
    file = tmp_path / "serve.json"
    words = "serve --problems 200 --seconds 1 --connections 8 --rounds 1"
    with pytest.raises(SystemExit) as ended:
        main(["bench", *words.split(), "-o", str(file)])
    assert not ended.value.code
    body = json.loads(file.read_text())
    (row,) = body["rows"]
    assert body["command"] == f"tilewise bench {words}"
    assert row["problems"] == 200
    assert row["ratio"] > 0.15  # of a bare Starlette application
    assert row["unseen_per_second"] > 0.03 * row["hello_per_second"]
    assert row["memory_mb"]["after_all"] < 2 * row["memory_mb"]["first_answer"]
    assert "8 connections, one worker" in capsys.readouterr().out


@pytest.mark.full
def test_look_ups_are_as_fast_as_promised_however_much_is_stored():
    body = bench_serve((1_000, 100_000), seconds=3, connections=64, rounds=3, say=str)
    for row in body["rows"]:
        assert row["ratio"] >= 0.45
        assert row["p99_ms"] < 20
        assert row["first_answer_s"] < 1.5
        assert row["nearest_p50_ms"] < 10
        assert row["export"]["memory_mb"] < 200
    ratios = [row["ratio"] for row in body["rows"]]
    assert max(ratios) < 1.2 * min(ratios)


def test_without_wrk_the_benchmark_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"wrk is not installed; install it \(Debian package: wrk\)"):
        bench_serve((1,), seconds=1, connections=1, rounds=1, say=str)
