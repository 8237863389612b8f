"""The output of a tuning to a file or a pipe instead of a terminal."""

import dataclasses
import threading

import pytest

from tilewise.cli.progress import LaneProgress, Progress, show_result
from tilewise.kernels.spec import Problem
from tilewise.tuner.tuning.loop import Budget, Tuning

PROBLEM = Problem("bowl", {"M": 64}, "float32")


@pytest.fixture
def shown(bowl, store, capsys):
    """Return a function that tunes the bowl, shows the result, and returns the lines of stdout and stderr."""

    def tune(trials: int, default=None, search="exhaustive") -> tuple[list[str], list[str]]:
        spec = dataclasses.replace(bowl.SPEC, default=lambda problem, target: default or bowl.DEFAULT)
        watcher = Progress()
        tuning = Tuning(
            spec, PROBLEM, bowl.FormulaDevice(), store, budget=Budget(trials), search=search, watcher=watcher
        )
        show_result(tuning.run(), store.trials(tuning.scope), watcher)
        return tuple(text.splitlines() for text in capsys.readouterr())

    return tune


def test_every_tenth_trial_and_every_new_best_is_a_line_and_none_is_said_twice(shown):
    _, errors = shown(20)
    trials = [line.split(",")[0] for line in errors if line.startswith("trial ")]
    assert {"trial 1/20", "trial 10/20", "trial 20/20"} <= set(trials)
    assert len(trials) == len(set(trials))


def test_the_last_line_says_at_which_evaluation_the_best_was_tried(shown):
    out, _ = shown(20, search="guided")
    assert "; best at evaluation " in out[-1]


def test_a_default_that_wins_is_said_to_have_won(bowl, shown):
    out, _ = shown(3, default=dict(bowl.BEST))
    assert "; best is the spec's default; verified" in out[-1]


def test_a_time_far_above_the_memory_floor_is_not_held_against_it(bowl, store, capsys):
    for floor, said in ((1.0, True), (0.001, False)):
        device, watcher = bowl.FormulaDevice(), Progress()
        device.floor_us = lambda spec, problem, floor=floor: floor
        tuning = Tuning(bowl.SPEC, PROBLEM, device, store, budget=Budget(2), fresh=True, watcher=watcher)
        show_result(tuning.run(), store.trials(tuning.scope), watcher)
        out, errors = capsys.readouterr()
        assert ("the memory floor" in errors, "that floor" in out) == (said, said)


def test_a_time_that_arithmetic_binds_is_held_against_the_peak(bowl, store, capsys):
    device, watcher = bowl.FormulaDevice(), Progress()
    device.target = dataclasses.replace(device.target, name="NVIDIA H200")
    spec = dataclasses.replace(bowl.SPEC, flops=lambda problem: 10**9, matrix_dtype=lambda problem: "bfloat16")
    tuning = Tuning(spec, PROBLEM, device, store, budget=Budget(2), watcher=watcher)
    result = tuning.run()
    show_result(result, store.trials(tuning.scope), watcher)
    out, errors = capsys.readouterr()
    rate = f"{1e3 / result.winner.time_us:.1f} TFLOP/s, {1e3 / result.winner.time_us / 989.4:.1%} of the peak"
    assert f"Arithmetic alone would take 1.01 us: the winner does {rate}." in out
    assert f"{rate} (" in errors
    assert result.winner.why.endswith(rate)
    assert result.winner.facts["share_of_peak"] == pytest.approx(1e9 / 989.4e6 / result.winner.time_us, abs=1e-4)


def test_each_line_of_one_tuning_of_several_at_once_begins_with_its_place(bowl, store, capsys):
    watcher = LaneProgress("shape 2 of 3", threading.Event())
    tuning = Tuning(bowl.SPEC, PROBLEM, bowl.FormulaDevice(), store, budget=Budget(20), watcher=watcher)
    watcher.ended(tuning.run())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 5
    assert {line[:14] for line in lines} == {"shape 2 of 3: "}


def test_one_tuning_of_several_at_once_ends_in_the_trial_after_an_interruption(bowl, store):
    stopping, device = threading.Event(), bowl.FormulaDevice()
    stopping.set()
    watcher = LaneProgress("shape 2 of 3", stopping)
    tuning = Tuning(bowl.SPEC, PROBLEM, device, store, budget=Budget(20), watcher=watcher)
    with pytest.raises(KeyboardInterrupt):
        tuning.run()
    assert len(store.trials(tuning.scope)) == 1
