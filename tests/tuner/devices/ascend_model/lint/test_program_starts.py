"""What handing out and starting programs beyond the first wave costs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.ascend_model.lint.programs import program_starts


def found(programs, start=12.0, dispatch=4.0):
    launch = SimpleNamespace(name="k", grid=(programs, 1, 1), place="k.py:1")
    course = SimpleNamespace(time=SimpleNamespace(overhead_us={"start": start, "dispatch": dispatch}))
    return list(program_starts(launch, course, 20))


@pytest.mark.parametrize(
    ("programs", "cost_us"),
    [
        (80, 12 * 3 / 4 + 4 * 60 / 80),
        (30, 12 * 1 / 2 + 4 * 10 / 30),
        (21, 12 * 1 / 2 + 4 * 1 / 21),
    ],
)
def test_starts_of_later_waves_and_programs_beyond_the_cores_cost(programs, cost_us):
    (finding,) = found(programs)
    assert finding.cost_us == pytest.approx(cost_us)
    assert finding.message == f"k starts {programs} programs on 20 cores"


def test_one_wave_costs_nothing_beside():
    assert found(20) == []
