"""docs/service.md shows the figures of the recorded results, and these keep the promises."""

from __future__ import annotations

import json

import pytest
from places import RESULTS

from tilewise.benchmarks.service.service_report import SOAKS, filled


def test_the_tables_are_what_make_docs_would_write():
    page = (RESULTS.parent / "service.md").read_text()
    assert filled(page, RESULTS) == page


def test_look_ups_are_as_fast_as_promised_however_much_is_stored():
    rows = json.loads((RESULTS / "serve.json").read_text())["rows"]
    assert [row["problems"] for row in rows] == [10**3, 10**5, 10**6]
    for row in rows:
        assert row["p99_ms"] < 10
        assert row["first_answer_s"] < 1.5
        assert row["ratio"] >= 0.45
        assert row["nearest_p50_ms"] < 5
        assert row.get("export", {"memory_mb": 0})["memory_mb"] < 200
    ratios = [row["ratio"] for row in rows]
    assert max(ratios) < 1.1 * min(ratios)


@pytest.mark.parametrize("name", SOAKS)
def test_ten_minutes_of_everything_broke_no_promise(name):
    body = json.loads((RESULTS / f"{name}.json").read_text())
    assert body["faults"] == []
    assert (body["seconds"], sum(body["kills"].values())) == (600, 50)
    assert body["server_memory_mb"]["growth_of_last_life"] <= 1.1
