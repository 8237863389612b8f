"""docs/search.md shows the recorded results."""

from __future__ import annotations

import json

import pytest
from places import ROOT

from tilewise.benchmarks.search.search_table import by_landscape, endings, reliability, summary

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


def test_every_modelled_landscape_takes_what_was_aimed_at():
    for row in result("search-modelled.json")["landscapes"]:
        guided, helped = (row["searches"][name] for name in ("guided", "guided-with-neighbours"))
        assert guided["evaluations_to"]["2%"] <= 10 and guided["evaluations_to_p95"]["2%"] <= 25, row["file"]
        assert helped["evaluations_to"]["2%"] <= 5, row["file"]


def test_every_landscape_of_the_h200_takes_what_was_aimed_at():
    for row in result("search-h200.json")["landscapes"]:
        assert row["searches"]["guided"]["evaluations_to"]["3%"] <= 20, row["file"]


def test_the_table_of_forecasts_is_that_of_the_recorded_run():
    assert reliability(result("search-outlook.json")) in PAGE


@pytest.mark.parametrize(
    "name",
    [
        "benchmark_hub",
        "modelled",
        "modelled-second-round",
        "h200",
        "outlook",
        "endings-h200",
        "endings-modelled",
        "endings-modelled-without-prior",
        "overhead",
        "priors",
        "row_reduce-1000x8192",
    ],
)
def test_every_result_says_with_what_it_was_made(name):
    assert result(f"search-{name}.json").keys() >= {"command", "date", "device", "clock", "versions"}


def test_the_table_of_endings_is_that_of_the_recorded_run():
    assert endings(result("search-endings-h200.json")) in PAGE


@pytest.mark.parametrize("name", ["search-endings-h200.json", "search-endings-modelled.json"])
def test_tunings_of_120_trials_and_more_end_near_the_best(name):
    for budget, ended in result(name)["budgets"].items():
        every = ended["all"]
        assert every["ended_alone_near"] >= 0.97 * every["ended_alone"]
        if budget != "60":
            assert every["near"] >= 0.97 * every["tunings"] and every["left_worst"] < 0.02


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
