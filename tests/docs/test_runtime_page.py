"""docs/runtime.md shows the figures of the recorded result."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

CONTENDERS = ("constants", "tilewise", "triton.autotune")
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["runtime-cpu", "runtime-h200"])
def test_the_table_of_costs_is_that_of_the_recorded_result(name):
    (table,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end -->", (DOCS / "runtime.md").read_text(), re.DOTALL)
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    rows = json.loads((DOCS / "results" / f"{name}.json").read_text())["rows"]
    assert shown == [
        [
            f"{row['entries']:,}",
            *(f"{row[name]['median_us']:.2f}, {row[name]['p99_us']:.2f}" for name in CONTENDERS),
            f"{row['tilewise']['added_median_us']:.2f}",
            f"{row['load']['seconds']:.3f} s, {row['load']['mb']:.1f} MB",
            f"{row['first_call_us']['exact_median']:.0f}",
        ]
        for row in rows
    ]


@pytest.mark.parametrize("name", ["runtime-cpu", "runtime-h200"])
def test_the_recorded_result_is_within_what_is_promised(name):
    for row in json.loads((DOCS / "results" / f"{name}.json").read_text())["rows"]:
        assert row["tilewise"]["added_median_us"] <= 2.0
        assert row["tilewise"]["median_us"] <= row["triton.autotune"]["median_us"]
        assert row["load"]["seconds"] < 0.5
        assert row["load"]["mb"] < 100
