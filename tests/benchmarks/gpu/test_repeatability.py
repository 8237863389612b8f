"""`bench repeatability`: repeated tunings of one problem, on the host device and on a GPU."""

import json

import pytest

pytest.importorskip("torch")

from tilewise.benchmarks.gpu import repeatability
from tilewise.benchmarks.gpu.repeatability import bench_repeatability
from tilewise.cli import main
from tilewise.kernels.spec import Problem

PROBLEM = Problem("sums", {"M": 12, "N": 40}, "float32")


def test_repeated_tunings_are_judged_by_the_true_times_of_their_winners(sums, in_place_of_the_gpu, monkeypatch):
    """All but `do_bench`, which times on a GPU only."""
    in_place_of_the_gpu(repeatability)
    slow = {"config": {"TILE": 3, "FAULT": ""}, "time_us": 13.0, "configs": 12, "timing_s": 9.0}
    monkeypatch.setattr(repeatability, "_do_bench", lambda spec, problem, configs: slow | {"configs": len(configs)})
    heard = []
    body = bench_repeatability(
        sums, PROBLEM, tunings=2, trials=12, rounds=20, seconds=600, progress=lambda text: heard.append(text)
    )
    assert heard[:2] == ["tuning 1 of 2", "tuning 2 of 2"]
    assert [(run["seed"], run["config"]["TILE"], run["true_us"]) for run in body["tunings"]] == [(0, 0, 10), (1, 0, 10)]
    assert body["true_us_largest_by_smallest"] == 0
    assert body["order"]["same_or_tie"]
    assert [body["order"][way]["trials"] for way in ("forward", "reversed")] == [12, 12]
    assert (body["do_bench"]["configs"], body["do_bench"]["true_us"]) == (12, 13)
    assert body["timing"]["ratio"] == round(9.0 / body["order"]["forward"]["timing_s"], 2)
    assert json.loads(json.dumps(body)) == body


def test_the_winners_alone_may_be_compared(sums, in_place_of_the_gpu):
    in_place_of_the_gpu(repeatability)
    body = bench_repeatability(
        sums, PROBLEM, tunings=3, trials=12, rounds=20, seconds=1e-9, progress=str, winners_only=True
    )
    assert len(body["tunings"]) == 1  # the time for further ones was over
    assert body["tunings"][0]["true_us"] == 10
    assert body.keys().isdisjoint({"order", "do_bench", "timing"})


def test_other_winners_agree_only_if_each_is_tied_with_the_other():
    def run(tile, *tied):
        return {"config": {"TILE": tile}, "tied_with": [f'{{"TILE":{other}}}' for other in tied]}

    assert repeatability._agree(run(1), run(1))
    assert repeatability._agree(run(1, 2), run(2, 1))
    assert not repeatability._agree(run(1, 2), run(2))


@pytest.mark.needs_gpu
def test_the_command_compares_tunings_on_a_gpu(tmp_path):
    file = tmp_path / "repeatability.json"
    words = "repeatability sum_rows -s M=512,N=1024 --tunings 2 --trials 12 --rounds 20"
    with pytest.raises(SystemExit) as ended:
        main(["bench", *words.split(), "-o", str(file)])
    assert not ended.value.code
    body = json.loads(file.read_text())
    assert len(body["tunings"]) == 2
    assert 0 <= body["true_us_largest_by_smallest"] < 0.5
    assert body["timing"]["do_bench_s"] > 0
