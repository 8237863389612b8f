"""docs/search.md shows the results that there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewise.tuner.bench.search_table import by_landscape, summary

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "search.md").read_text()


def result(name):
    return json.loads((ROOT / "docs" / "results" / name).read_text())


def test_the_table_of_searches_is_that_of_the_recorded_run():
    assert summary(result("search-benchmark_hub.json")) in PAGE


@pytest.mark.parametrize(("name", "margin"), [("search-modelled.json", "2%"), ("search-h200.json", "3%")])
def test_the_tables_of_landscapes_are_those_of_the_recorded_runs(name, margin):
    body = result(name)
    assert by_landscape(body, margin) in PAGE
    assert all((ROOT / "landscapes" / row["file"]).exists() for row in body["landscapes"])


def test_every_landscape_is_described():
    described = (ROOT / "landscapes" / "README.md").read_text()
    for file in (ROOT / "landscapes").glob("*.json.gz"):
        assert file.name.removesuffix(".json.gz") in described


def test_guided_is_ahead_of_every_other_search_at_every_column():
    mean = result("search-benchmark_hub.json")["mean"]
    for name, other in mean.items():
        if name != "guided":
            assert all(mean["guided"]["fraction"][n] > value for n, value in other["fraction"].items()), name
            assert mean["guided"]["score"] > other["score"], name
