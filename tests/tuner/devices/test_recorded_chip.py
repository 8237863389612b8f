"""Chips that a file describes: their times are the recorded ones, with what is planted."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import pytest
from places import LANDSCAPES

from tilewise.db.records import Clock, Status
from tilewise.errors import BadImport
from tilewise.kernels import registry
from tilewise.tuner.devices.recorded_chip import SUFFIX, Planted
from tilewise.tuner.devices.registry import open_device
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import enumerate_space

RECORDING = LANDSCAPES / "sum_rows-16384x1024-float32-H200.json.gz"
SPEC = registry.load("sum_rows")
PLAIN = Planted(str(RECORDING), "NVIDIA H200 replay", "replay 1")


@pytest.fixture
def chip(tmp_path):
    def made(**planted):
        file = tmp_path / f"chip{SUFFIX}"
        file.write_text(json.dumps(asdict(replace(PLAIN, **planted))))
        return open_device(f"replay:{file}")

    return made


def problem(m=16384):
    return make_problem(SPEC, {"M": m, "N": 1024}, "float32")


def configs(device, count, m=16384):
    return enumerate_space(SPEC, problem(m), device.target).configs[:count]


def times(device, m=16384):
    outcomes = device.evaluate(SPEC, problem(m), configs(device, 10, m))
    return [outcome.timing.time_us for outcome in outcomes if outcome.timing]


def test_it_measures_every_shape_under_the_planted_name_and_toolchain(chip):
    device = chip()
    scope = device.scope(SPEC, problem(16400))
    assert (scope.device, scope.toolchain, scope.clock) == ("NVIDIA H200 replay", "replay 1", Clock.MEASURED)
    assert len(configs(device, 1000, 16400)) == len(ReplayDevice(RECORDING).rows)


def test_without_anything_planted_the_times_are_the_recorded_ones(chip):
    replayed = ReplayDevice(RECORDING)
    recorded = [o.timing.time_us for o in replayed.evaluate(replayed.spec, replayed.problem, configs(chip(), 10))]
    assert times(chip()) == pytest.approx(recorded)
    assert times(chip(slowness=1.1)) == pytest.approx([1.1 * time_us for time_us in recorded])


def test_shapes_vary_and_chips_of_one_name_vary_alike(chip):
    varied = {"variation": 0.1}
    assert times(chip(**varied)) != pytest.approx(times(chip(**varied), 16385), rel=0.01)
    assert times(chip(**varied, slowness=0.9)) == pytest.approx([0.9 * one for one in times(chip(**varied))])
    assert times(chip(**varied, name="another")) != pytest.approx(times(chip(**varied)), rel=0.01)


def test_runs_have_noise_around_the_true_time(chip):
    assert times(chip(noise=0.02)) == pytest.approx(times(chip()), rel=0.05)
    assert times(chip(noise=0.02)) != times(chip())


def test_a_config_that_was_not_recorded_is_outside_and_an_outcome_says_where_it_was_timed(chip):
    device = chip()
    known, unknown = configs(device, 1)[0], dict.fromkeys(configs(device, 1)[0], 3)
    right, wrong = device.evaluate(SPEC, problem(), [known, unknown])
    assert wrong.status is Status.CONSTRAINTS
    assert right.facts["chip"] == wrong.facts["chip"] == device.id
    assert right.facts["process"] > 0


@pytest.mark.parametrize("text", ["[]", "{", '{"name": "x"}', '{"nonsense": 1}', "3"])
def test_a_file_that_describes_no_chip_is_refused_in_one_line(tmp_path, text):
    file = tmp_path / f"bad{SUFFIX}"
    file.write_text(text)
    with pytest.raises(BadImport, match=f"^{re.escape(str(file))} does not describe a chip: .*$"):
        open_device(f"replay:{file}")
