"""Compiling and timing of one config."""

from tilewise.tuner.devices.ascend_model.model_config import model_config


def test_a_config_without_the_option_is_double_buffered(row_reduce, problem, rows, target, cache_folder):
    size = problem(1000, 8192)
    double, single = (rows(25, 25, 256, multibuffer=option) for option in (True, False))
    silent = {name: value for name, value in double.items() if name != "multibuffer"}
    outcomes = [model_config(row_reduce, size, config, target, cache_folder)[0] for config in (silent, double, single)]
    times = [outcome.timing.time_us for outcome in outcomes]
    assert times[0] == times[1] < times[2]
