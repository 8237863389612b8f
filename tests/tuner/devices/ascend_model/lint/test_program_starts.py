"""The cost of handing out and starting programs beyond the first wave."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.ascend_model.lint.programs import idle_cores, program_starts


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


def idle(programs, *, time_us=100.0, spare_us=1000.0):
    launch = SimpleNamespace(name="k", grid=(programs, 1, 1), place="k.py:1")
    course = SimpleNamespace(time=SimpleNamespace(time_us=time_us, overhead_us={"start": 12.0, "dispatch": 8.0}))
    return list(idle_cores(launch, course, 20, spare_us))


@pytest.mark.parametrize(
    ("programs", "cost_us", "words"),
    [
        (15, 80 * 5 / 20, "k has 15 programs for 20 cores: 25% of the cores stay idle"),
        (30, 80 * 10 / 40, "k keeps 25% of 20 cores' time idle: 30 programs, and the last of 2 waves has 10"),
        (59, 80 * 1 / 60, "k keeps 2% of 20 cores' time idle: 59 programs, and the last of 3 waves has 19"),
    ],
)
def test_idle_cores_cost_their_share_of_the_time_that_programs_run(programs, cost_us, words):
    (finding,) = idle(programs)
    assert finding.cost_us == pytest.approx(cost_us)
    assert finding.message == words


def test_idle_cores_cost_no_more_than_the_time_above_the_floor_and_full_waves_nothing():
    (finding,) = idle(15, spare_us=3.0)
    assert finding.cost_us == 3.0
    assert idle(20) == idle(40) == []
