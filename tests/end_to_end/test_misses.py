"""Shapes that a program launched untuned are listed, tuned, and then no longer listed."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def keep(tilewise, tmp_path):
    os.makedirs(tmp_path, exist_ok=True)
    file = tmp_path / "misses.jsonl"
    return tilewise.__class__(tilewise.folder, {**tilewise.environment, "TILEWISE_MISSES": str(file)}), file


@pytest.mark.full
def test_shapes_launched_untuned_are_listed_tuned_and_struck_off(keep):
    from tilewise.db.records import Problem, Question
    from tilewise.tuner.runtime.untuned_shapes import UntunedShapes

    tilewise, file = keep
    misses = UntunedShapes(file)
    for m, device in ((64, "Ascend910B4"), (64, "Ascend910B4"), (65, "NVIDIA H200")):
        misses.add(Question(Problem("row_reduce", {"M": m, "N": 256}, "float32"), device), "row_reduce", "portfolio")
    listed = tilewise.json("misses", "row_reduce")["misses"]
    assert [(miss["dims"]["M"], miss["processes"]) for miss in listed] == [(64, 2), (65, 1)]
    words = ("tune", "row_reduce", "--misses", "--device", "model:Ascend910B4", "--trials", "2")
    assert [result["dims"] for result in tilewise.json(*words)["results"]] == [{"M": 64, "N": 256}]
    assert [miss["dims"]["M"] for miss in tilewise.json("misses")["misses"]] == [65]
    again = tilewise(*words)
    assert again.returncode == 4
    assert "no shape of row_reduce was launched untuned on Ascend910B4" in again.stderr
    assert tilewise("misses", "--forget").returncode == 0
    assert tilewise.json("misses")["misses"] == []


def test_misses_that_are_not_kept_are_said_to_be(tilewise):
    off = tilewise.__class__(tilewise.folder, {**tilewise.environment, "TILEWISE_MISSES": "off"})
    done = off("misses")
    assert done.returncode == 2
    assert "TILEWISE_MISSES is off" in done.stderr
