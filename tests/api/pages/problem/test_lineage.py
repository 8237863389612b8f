"""A problem over devices, toolchains and sources: changes of its time, and what is out of date."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tilewise.api.pages.problem.lineage import lineage, newest_toolchains, staleness
from tilewise.db.records import Clock, Problem, Result, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store

SCOPE = Scope(Problem("mine", {"N": 8}, "float32"), "a1", "NVIDIA H200", Clock.MEASURED, "triton 1", 132)


def winner(day, time_us, low=None, high=None, **config):
    times = {"time_us": time_us, "low_us": low, "high_us": high}
    return Trial(config, Status.CORRECT, **times, verified=True, created=datetime(2026, 11, day, tzinfo=UTC))


def result(day, toolchain, device="NVIDIA H200", clock=Clock.MEASURED):
    scope = replace(SCOPE, toolchain=toolchain, device=device, clock=clock)
    return Result(scope, None if day is None else winner(day, 1.0), None, {}, 0.0)


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'db'}") as store:
        yield store


def test_each_time_is_compared_with_the_one_before_it_on_its_device_and_clock(store):
    for toolchain, trial in {
        "triton 2": winner(2, 12.0, 11.9, 12.1, A=1),
        "triton 1": winner(1, 10.0, 9.9, 10.1, A=1),
        "triton 3": winner(3, 6.0, 5.9, 6.1, A=2),
    }.items():
        store.record(replace(SCOPE, toolchain=toolchain), [trial])
    store.record(replace(SCOPE, device="Another"), [winner(4, 50.0, A=1)])
    here = replace(SCOPE, toolchain="triton 2")
    found = lineage(store, Result(here, None, None, {}, 0.0))
    assert [
        (each.scope.device, each.scope.toolchain, each.here, each.time_us, each.change, each.slower, each.flipped)
        for each in found
    ] == [
        ("Another", "triton 1", False, 50.0, None, False, False),
        ("NVIDIA H200", "triton 1", False, 10.0, None, False, False),
        ("NVIDIA H200", "triton 2", True, 12.0, 1.2, True, False),
        ("NVIDIA H200", "triton 3", False, 6.0, 0.5, False, True),
    ]
    assert [each.stale for each in found] == ["", "of an older toolchain", "of an older toolchain", ""]
    assert [each.config for each in found[2:]] == ["A=1", "A=2"]
    assert found[3].tuned == datetime(2026, 11, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "slower"),
    [
        ((10.19, None, None), False),
        ((10.2, None, None), True),
        ((10.2, 10.05, 10.3), False),  # it begins where the one before may have been
        ((10.2, 10.1, 10.3), False),
        ((10.2, 10.11, 10.3), True),
    ],
)
def test_two_percent_more_is_slower_unless_the_intervals_overlap(store, now, slower):
    store.record(SCOPE, [winner(1, 10.0, 9.9, 10.1)])
    store.record(replace(SCOPE, toolchain="triton 2"), [winner(2, *now)])
    assert [each.slower for each in lineage(store, result(1, "triton 1"))] == [False, slower]


def test_a_scope_without_a_winner_is_listed_where_it_is_the_pages_own(store):
    store.record(SCOPE, [winner(1, 10.0)])
    own = result(None, "triton 9")
    first, second = lineage(store, own)
    assert (first.here, first.config, first.time_us) == (True, "", None)
    assert (second.here, second.change) == (False, None)


def test_the_newest_toolchain_is_that_of_the_latest_winner_of_a_device_and_clock():
    modelled = result(9, "model", clock=Clock.MODELLED)
    results = [result(2, "b"), result(3, "a"), result(1, "c"), result(None, "d"), modelled, result(1, "e", "Another")]
    newest = newest_toolchains(results)
    assert newest == {
        ("NVIDIA H200", "measured"): "a",
        ("NVIDIA H200", "modelled"): "model",
        ("Another", "measured"): "e",
    }
    assert [staleness(each, newest) for each in results] == [
        "of an older toolchain",
        "",
        "of an older toolchain",
        "of an older toolchain",
        "",
        "",
    ]
    assert staleness(result(1, "c"), {}) == ""
    known = replace(result(1, "c"), scope=replace(SCOPE, problem=Problem("row_reduce", {"M": 1, "N": 1}, "float32")))
    assert staleness(known, {}) == "of another version of the source"
