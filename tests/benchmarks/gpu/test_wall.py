"""`bench wall`: the time from nothing to a config near the best, on the host device and on a GPU."""

import json
import os

import pytest

pytest.importorskip("torch")

from tilewise.benchmarks.gpu import wall
from tilewise.benchmarks.gpu.wall import bench_wall
from tilewise.cli import main
from tilewise.errors import NotFound
from tilewise.kernels.spec import Problem
from tilewise.tuner.tuning.loop import Budget, Tuning

PROBLEM = Problem("sums", {"M": 12, "N": 40}, "float32")


@pytest.fixture
def on_the_host(in_place_of_the_gpu, monkeypatch):
    """All but `triton.autotune`, which launches on a GPU only."""
    in_place_of_the_gpu(wall)
    monkeypatch.setattr(wall, "_autotune", lambda spec, problem, configs: (2.0 * len(configs), configs[0]))


def test_a_search_is_timed_until_it_is_within_3_percent_of_the_stored_best(on_the_host, host_device, sums, store):
    Tuning(sums, PROBLEM, host_device, store, budget=Budget(None), search="exhaustive").run()
    body = bench_wall(sums, PROBLEM, store, seeds=2, sample=3)
    assert (body["configs"], body["exhaustive_best_us"]) == (12, 10)
    for runs in body["searches"].values():
        assert [run["seed"] for run in runs] == [0, 1]
        for run in runs:
            assert (run["reached"], run["best_us"]) == (True, 10)
            assert 1 <= run["evaluations"] <= 12 and run["seconds"] > 0
    assert body["autotune"].keys() == {"configs", "seconds", "scaled_seconds", "best"}
    assert (body["autotune"]["seconds"], body["autotune"]["scaled_seconds"]) == (6, 24)
    assert json.loads(json.dumps(body)) == body


def test_without_an_exhaustive_run_there_is_no_best_to_come_near(on_the_host, sums, store):
    with pytest.raises(NotFound, match="0 of 12 configs of sums M=12,N=40 are stored; run tilewise tune with --search"):
        bench_wall(sums, PROBLEM, store)


def test_the_compile_cache_is_empty_meanwhile_and_the_users_own_afterwards(monkeypatch):
    for before in ("/mine", None):
        if before is None:
            monkeypatch.delenv("TRITON_CACHE_DIR")
        else:
            monkeypatch.setenv("TRITON_CACHE_DIR", before)
        with wall._empty_cache():
            assert os.listdir(os.environ["TRITON_CACHE_DIR"]) == []
        assert os.environ.get("TRITON_CACHE_DIR") == before


@pytest.mark.needs_gpu
def test_the_command_times_searches_and_autotune_on_a_gpu(url, tmp_path):
    file = tmp_path / "wall.json"
    problem = ["sum_rows", "-s", "M=512,N=300", "--db", url]
    for words in (
        ["tune", *problem, "--device", "cuda", "--search", "exhaustive"],
        ["bench", "wall", *problem, "--seeds", "1", "--sample", "2", "-o", str(file)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert not ended.value.code
    body = json.loads(file.read_text())
    assert body["searches"]["guided"][0]["reached"]
    assert body["autotune"]["configs"] == 2
