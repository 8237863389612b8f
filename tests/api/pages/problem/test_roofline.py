"""The rates that the page shows of a result."""

from __future__ import annotations

import dataclasses

import pytest

from tilewise.api.pages.problem.roofline import roofline
from tilewise.db.records import Clock, Problem, Result, Scope
from tilewise.kernels import registry

SPEC = registry.load("vector_add")
SCOPE = Scope(Problem("vector_add", {"N": 1_000_000}, "float32"), "a1", "Ascend910B4", Clock.MODELLED, "model-1", 40)


@pytest.fixture
def result(records):
    """A million additions in 20 us, and in 40 us with the default config."""
    winner = dataclasses.replace(records[0], time_us=20.0)
    return Result(SCOPE, winner, dataclasses.replace(winner, time_us=40.0), {}, 1.0)


def test_rates_are_bytes_and_operations_by_time(result):
    """Two float32 are read and one is written for each addition: 12 MB in 20 us are 600 GB/s."""
    shown = roofline(result, SPEC)
    assert shown is not None
    assert shown.intensity == pytest.approx(1 / 12)
    assert (shown.gb_s, shown.default_gb_s) == (pytest.approx(600), pytest.approx(300))
    assert shown.gflop_s == pytest.approx(50)


def test_a_measured_device_and_an_unknown_one_have_no_roofs(result):
    for scope in (dataclasses.replace(SCOPE, clock=Clock.MEASURED), dataclasses.replace(SCOPE, device="elsewhere")):
        shown = roofline(dataclasses.replace(result, scope=scope), SPEC)
        assert shown is not None
        assert (shown.roofs, shown.highest) == ({}, shown.gb_s)


def test_without_a_winner_or_the_kernels_spec_there_is_nothing_to_show(result):
    assert roofline(result, None) is None
    assert roofline(dataclasses.replace(result, winner=None), SPEC) is None
