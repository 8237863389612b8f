"""Groups of programs: what they are split by, and how often the innermost loop was entered before."""

from __future__ import annotations

import numpy as np
import pytest

from tilewise.tuner.devices.ascend_model.executor.groups import Group, Trip, run_steps
from tilewise.tuner.devices.ascend_model.executor.memory import View


class Kept:
    """Stands for memory on chip, and for an order, of so many programs."""

    def __init__(self, programs):
        self.programs = programs

    def take(self, chosen):
        return Kept(self.programs[chosen])

    def copy(self):
        return Kept(self.programs)


def group(*values, programs=4):
    numbers = np.arange(programs)
    return Group(numbers, list(values), Kept(numbers), Kept(numbers), [Trip(1, 4)])


def test_programs_are_split_by_each_combination_of_values_and_keep_what_is_theirs():
    view = View(-1, 0, np.array([0, 8, 16, 24]), (8,), (1,), "f32")
    whole = group(np.array([1, 0, 1, 1]), np.array([5, 5, 5, 6]), np.array([10, 11, 12, 13]), view, 7)
    parts = whole.split([0, 1, 4])
    assert [(part.values[:2], part.programs.tolist()) for part in parts] == [
        ([0, 5], [1]),
        ([1, 5], [0, 2]),
        ([1, 6], [3]),
    ]
    middle = parts[1]
    assert middle.values[2].tolist() == [10, 12]
    assert middle.values[3].offset.tolist() == [0, 16]
    assert middle.values[4] == 7
    assert middle.chip.programs.tolist() == [0, 2]
    middle.trips.append(Trip(0, 1))
    assert len(whole.trips) == len(parts[0].trips) == 1


def test_programs_of_equal_values_stay_together():
    whole = group(np.array([3, 3, 3, 3]), 7)
    assert whole.split([1]) == [whole]
    assert whole.split([0]) == [whole]
    assert whole.values[0] == 3


@pytest.mark.parametrize(
    ("trips", "count"),
    [
        ([], 0),
        ([Trip(3, 8)], 3),
        ([Trip(1, 4), Trip(1, 3)], 1 * 3 + 1),
        ([Trip(2, 4), Trip(2, 4), Trip(1, 2)], (2 * 4 + 2) * 2 + 1),
    ],
)
def test_an_iteration_is_counted_over_all_loops_around_it(trips, count):
    one = group()
    one.trips[:] = trips
    assert one.iteration() == count


def test_values_may_be_assigned_to_one_another():
    one = group(1, 2, 3)
    one.assign([0, 1, 2], [1, 2, 0])
    assert one.values == [2, 3, 1]


def test_every_part_runs_through_every_step_that_is_left():
    ran = []

    def step(name, split=None):
        def run(part):
            ran.append((name, part.programs.tolist()))
            return None if split is None else part.split([split])

        return run

    whole = group(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 0]))
    ends = run_steps([step("a"), step("b", 0), step("c", 1), step("d")], [whole])
    assert [end.programs.tolist() for end in ends] == [[0], [2], [1, 3]]
    assert ran == [
        *(("a", [0, 1, 2, 3]), ("b", [0, 1, 2, 3]), ("c", [0, 2]), ("c", [1, 3])),
        *(("d", [0]), ("d", [2]), ("d", [1, 3])),
    ]
