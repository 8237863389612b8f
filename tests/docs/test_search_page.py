"""docs/search.md shows the recorded results."""

from __future__ import annotations

import json

import pytest
from places import ROOT

from tilewise.benchmarks.search.search_table import by_landscape, endings, summary

PAGE = (ROOT / "docs" / "search.md").read_text()


def result(name):
    return json.loads((ROOT / "docs" / "results" / name).read_text())


def test_the_table_of_searches_is_that_of_the_recorded_run():
    assert summary(result("search-benchmark_hub.json")) in PAGE


@pytest.mark.parametrize(
    ("name", "margin"),
    [
        ("search-modelled.json", "2%"),
        ("search-cube.json", "5%"),
        ("search-h200.json", "3%"),
        ("search-matrix-first.json", "3%"),
        ("search-matrix-second.json", "3%"),
        ("search-matrix.json", "3%"),
    ],
)
def test_the_tables_of_landscapes_are_those_of_the_recorded_runs(name, margin):
    body = result(name)
    assert by_landscape(body, margin) in PAGE
    assert all((ROOT / "landscapes" / row["file"]).exists() for row in body["landscapes"])


def test_the_tables_of_the_headline_problem_are_those_of_the_recorded_run():
    body = result("search-row_reduce-1000x8192.json")
    page = (ROOT / "docs" / "results" / "search-row_reduce-1000x8192.md").read_text()
    assert by_landscape(body, "2%") in page
    assert summary(body) in page


@pytest.mark.parametrize(
    "name",
    [
        "benchmark_hub",
        "modelled",
        "cube",
        "modelled-second-round",
        "h200",
        "matrix",
        "matrix-first",
        "matrix-second",
        "endings-h200",
        "endings-modelled",
        "endings-modelled-without-prior",
        "overhead",
        "row_reduce-1000x8192",
    ],
)
def test_every_result_says_with_what_it_was_made(name):
    assert result(f"search-{name}.json").keys() >= {"command", "date", "device", "clock", "versions"}


def test_the_table_of_endings_is_that_of_the_recorded_run():
    assert endings(result("search-endings-h200.json")) in PAGE


def test_every_landscape_is_described():
    described = (ROOT / "landscapes" / "README.md").read_text()
    for file in (ROOT / "landscapes").glob("*.json.gz"):
        assert file.name.removesuffix(".json.gz") in described
