"""The files that `explain` writes, and its messages if it cannot."""

import json

import pytest

pytest.importorskip("matplotlib")

SHAPE = ("row_reduce", "-s", "M=200,N=1000")
MODEL = ("--device", "model:Ascend910B4")
CONFIG = ("-c", "BLOCK_SIZE_M=5,SUB_BLOCK_SIZE_M=5,BLOCK_SIZE_N=256")


def test_explain_takes_the_time_apart_and_writes_its_pictures(tilewise):
    trace, picture, plot = (tilewise.folder / name for name in ("trace.json", "course.svg", "roofline.png"))
    words = ("explain", *SHAPE, *CONFIG, *MODEL)
    body = tilewise.json(*words, "--trace", str(trace), "--roofline", str(plot))
    assert sum(body["rows_us"].values()) == pytest.approx(body["time_us"], abs=0.01)
    assert any("tl.sigmoid" in line["source"] for line in body["lines"])
    low, high = body["modelled_between_us"]
    assert low < body["time_us"] == body["modelled_us"] < high
    inside = body["time_us"] - sum(body["rows_us"][row] for row in ("launch", "start", "dispatch", "atomics", "lines"))
    assert sum(step["us"] for step in body["critical_path"]) == pytest.approx(inside, abs=0.05)
    assert body["traffic"]["ratio"] > 1
    assert body["options"][0]["option"] == "multibuffer"
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "s", "f"}
    assert plot.read_bytes().startswith(b"\x89PNG")
    shown = tilewise(*words, "--trace", str(picture)).stdout
    assert picture.read_text().startswith("<svg")
    assert "  config      BLOCK_SIZE_M=5, SUB_BLOCK_SIZE_M=5, BLOCK_SIZE_N=256, multibuffer=True\n" in shown
    for text in ("waiting", "launch", "tl.sigmoid", "traffic", "option      multibuffer=True; with False"):
        assert text in shown


def test_a_file_of_another_kind_is_refused_before_any_work(tilewise):
    run = tilewise("explain", *SHAPE, *CONFIG, *MODEL, "--trace", "trace.txt")
    assert run.returncode == 2
    assert "does not end in .json or .svg" in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.full
def test_a_config_that_does_not_run_has_no_timeline(tilewise):
    config = "BLOCK_SIZE_M=25,SUB_BLOCK_SIZE_M=5,BLOCK_SIZE_N=4096"
    words = ("explain", "row_reduce", "-s", "M=1000,N=8192", "-c", config, *MODEL)
    run = tilewise(*words, "--trace", str(tilewise.folder / "trace.json"))
    assert run.returncode == 2
    assert "cannot draw a timeline: the config does not run: UB overflow" in run.stderr
