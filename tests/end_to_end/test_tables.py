"""A table of configs on the real compiler: tuned rung by rung, exported, and tuned no second time."""

from __future__ import annotations

import json

import pytest

RUNGS = ("tune", "row_reduce", "-s", "N=1000", "--rungs", "M=40,80", "--device", "model:Ascend910B4", "--trials", "3")


@pytest.mark.full
def test_a_table_is_tuned_and_exported_in_two_commands(tilewise):
    results = tilewise.json(*RUNGS)["results"]
    assert [result["dims"] for result in results] == [{"M": 40, "N": 1000}, {"M": 80, "N": 1000}]
    assert all(result["verified"] and result["time_us"] <= result["default"]["time_us"] for result in results)
    export = tilewise("export", "--kernel", "row_reduce", "--format", "vllm", "--sizes", "40,80", "-o", "tables")
    assert export.returncode == 0, export.stderr
    [file] = (tilewise.folder / "tables").iterdir()
    assert json.loads(file.read_text()) == {str(result["dims"]["M"]): result["config"] for result in results}

    again = tilewise(*RUNGS)
    assert again.returncode == 0, again.stderr
    assert "3 of them stored already" in again.stderr
    assert "2 of 2 rungs tuned, none slower than the default." in again.stdout
