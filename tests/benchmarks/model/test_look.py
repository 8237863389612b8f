"""`bench model --look`: lists of published timings that had decided nothing when they were made."""

import dataclasses
import math

import pytest

from tilewise.benchmarks.model.judge import look as looks
from tilewise.benchmarks.model.judge.cases import published_cases
from tilewise.benchmarks.model.judge.look import LOOKS, look, summary
from tilewise.benchmarks.model.judge.programs import record
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.hardware.ascend_costs import costs

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)

from tilewise.tuner.measure.launch import resolve_function

LISTS = {which: published_cases(f"tilewise.benchmarks.model.judge.{which}_look") for which in LOOKS}
CASES = {case.id: case for cases in LISTS.values() for case in cases}


def looked(monkeypatch, *cases):
    monkeypatch.setattr(looks, "published_cases", lambda package: cases)
    return look("first", read_settings().cache_folder)


def test_no_case_was_known_before():
    known = published_cases()
    for which in LOOKS:
        assert not {case.id for case in LISTS[which]} & {case.id for case in known}
        assert not {case.kernel for case in LISTS[which]} & {case.kernel for case in known}
        known += LISTS[which]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_config_is_one_of_its_kernels(case):
    spec = case.spec()
    constant = {
        parameter.name
        for function in spec.functions()
        for parameter in resolve_function(spec, function).params
        if parameter.is_constexpr
    }
    assert case.source
    assert case.best_us
    for row in case.rows:
        assert set(row.config) - set(spec.options()) == constant - set(case.problem.dims)


def test_blocks_that_a_program_takes_in_turns_start_once():
    """A thousand blocks on 40 cores: 26 waves of programs, or one of loops."""
    case = CASES["smooth_l1_backward_blocks_f32"]
    apart = dataclasses.replace(case, all_blocks_parallel=False)
    config, folder = case.rows[0].config, read_settings().cache_folder
    joined, started = (record(each, config, folder).time(costs()) for each in (case, apart))
    assert (joined.waves, started.waves) == (1, 26)
    assert joined.bytes_in == pytest.approx(started.bytes_in, rel=0.02)
    assert joined.bytes_out == pytest.approx(started.bytes_out, rel=0.02)
    assert joined.time_us < 0.6 * started.time_us


def test_a_config_that_does_not_fit_is_named_and_another_one_timed(monkeypatch):
    case = CASES["kb_28_hardsigmoid"]
    body = looked(monkeypatch, dataclasses.replace(case, rows=case.rows[:2]))
    (row,) = body["rows"]
    (refused,) = row["refused"]
    assert refused.startswith("UB overflow")
    assert row["config"] == {"BLOCK_SIZE": 8192}
    assert row["ln_error"] == pytest.approx(math.log(row["modelled_us"] / row["published_us"]), abs=1e-3)
    assert row["low_us"] < row["modelled_us"] < row["high_us"]


def test_a_case_none_of_whose_configs_fits_is_listed_with_the_reason(monkeypatch):
    case = CASES["kb_28_hardsigmoid"]
    body = looked(monkeypatch, dataclasses.replace(case, rows=case.rows[:1]))
    assert body["rows"] == body["partly"] == []
    (untimed,) = body["untimed"]
    assert untimed["reasons"][0].startswith("UB overflow")
    assert body["summary"] == {}


def test_a_case_whose_loops_follow_tensor_contents_is_listed_with_the_reason(monkeypatch):
    (untimed,) = looked(monkeypatch, CASES["slot_mapping_128"])["untimed"]
    assert "depends on tensor contents" in untimed["reasons"][0]


def test_a_time_that_holds_other_kernels_counts_in_no_error(monkeypatch):
    body = looked(monkeypatch, CASES["kb_100_hinge"])
    (partly,) = body["partly"]
    assert partly["more"]
    assert body["rows"] == []
    assert body["summary"] == {}


def test_one_program_adds_up_what_the_first_launch_has_stored():
    case = CASES["kb_98_kldiv"]
    spec = case.spec()
    assert [launch.grid for launch in spec.plan(case.rows[0].config, case.problem)] == [(128,), (1,)]


def test_the_summary_keeps_short_timings_apart():
    rows = [
        {"id": "a", "published_us": 5.0, "low_us": 4.0, "high_us": 6.0, "ln_error": 0.1},
        {"id": "b", "published_us": 50.0, "low_us": 60.0, "high_us": 90.0, "ln_error": 0.4},
        {"id": "c", "published_us": 50.0, "low_us": 10.0, "high_us": 20.0, "ln_error": -1.2},
    ]
    found = summary(rows)
    assert found["all"] == {
        "timings": 3,
        "mean_ln_error": 0.5667,
        "mean_signed": -0.2333,
        "worst": "c",
        "worst_ln_error": -1.2,
        "inside": 1,
        "too_slow": 2,
    }
    assert (found["short"]["timings"], found["rest"]["timings"]) == (1, 2)
