"""Costs of operations, as parts of a launch's modelled time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.ascend_model.clock.core import MTE2, V
from tilewise.tuner.devices.ascend_model.lint.costs import Costs


def course(*path, cycle_us=0.5):
    """A course whose critical path has these events: the index of an operation, its pipe and its cycles."""
    events = [(SimpleNamespace(op=op, pipe=pipe), cycles) for op, pipe, cycles in path]
    return SimpleNamespace(recording=SimpleNamespace(critical_path=lambda: iter(events)), cycle_us=cycle_us)


def numbered(*numbers):
    return [SimpleNamespace(number=number) for number in numbers]


def test_an_operation_costs_what_it_takes_of_the_critical_path():
    costs = Costs(course((0, MTE2, 10.0), (1, V, 4.0), (0, MTE2, 6.0)))
    assert [costs.of(numbered(number)) for number in (1, 2, 3)] == [8.0, 2.0, 0.0]
    assert costs.of(numbered(1, 2)) == 10.0
    assert costs.of([]) == 0.0


@pytest.mark.parametrize(("computing", "hidden"), [(4.0, 2.0), (16.0, 8.0), (40.0, 8.0), (0.0, 0.0)])
def test_loads_are_hidden_as_far_as_other_work_is_long_enough(computing, hidden):
    costs = Costs(course((0, MTE2, 16.0), (1, V, computing)))
    assert costs.hidden_at_most(numbered(1)) == hidden


def test_nothing_is_known_of_a_launch_that_is_not_timed():
    costs = Costs(None)
    assert (costs.of(numbered(1)), costs.hidden_at_most(numbered(1))) == (None, None)
