"""Compiling and timing of one config."""

from tilewise.db.records import Status
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.model_config import model_config


def test_a_config_without_the_option_is_double_buffered(row_reduce, problem, rows, target, cache_folder):
    size = problem(1000, 8192)
    double, single = (rows(25, 25, 256, multibuffer=option) for option in (True, False))
    silent = {name: value for name, value in double.items() if name != "multibuffer"}
    outcomes = [model_config(row_reduce, size, config, target, cache_folder)[0] for config in (silent, double, single)]
    times = [outcome.timing.time_us for outcome in outcomes]
    assert times[0] == times[1] < times[2]


def test_a_front_end_that_does_not_end_is_a_timeout(row_reduce, problem, rows, target, cache_folder, monkeypatch):
    monkeypatch.setattr(toolchain, "_LOWERED", {})
    monkeypatch.setattr(toolchain, "_SECONDS", 0.0001)
    outcome, _ = model_config(row_reduce, problem(1000, 8192), rows(25, 25, 256), target, cache_folder)
    assert (outcome.status, outcome.reason) == (Status.TIMEOUT, "triton-adapter-opt did not finish within 0.0001 s")
    monkeypatch.undo()
    assert model_config(row_reduce, problem(1000, 8192), rows(25, 25, 256), target, cache_folder)[0].timing
