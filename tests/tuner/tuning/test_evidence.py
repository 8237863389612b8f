"""Stored trials from outcomes: their facts, and the sentence that explains a time."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem, Target
from tilewise.tuner.measure.outcome import Outcome, Timing
from tilewise.tuner.tuning.evidence import evidence, explanation, timing_fields, trial_from_outcome

GRID = {"programs": 40, "cores": 40, "waves": 1}
PIPES = {"bound_by": "MTE2", "pipes_us": {"MTE2": 6.0, "V": 2.0}}
ARITHMETIC = {"tflop_s": 640.12, "share_of_peak": 0.6471, "gb_s": 900.0}


@pytest.mark.parametrize(
    ("facts", "time_us", "words"),
    [
        ({}, None, ""),
        (GRID, None, "40 programs on 40 cores"),
        ({"programs": 1, "cores": 40, "waves": 1}, None, "1 program on 40 cores"),
        ({"programs": 41, "cores": 40, "waves": 2}, None, "41 programs on 40 cores in 2 waves"),
        ({"tail_rows": 0}, None, "no tail rows"),
        ({"tail_rows": 1}, None, "1 tail row per program"),
        ({"tail_rows": 2}, None, "2 tail rows per program"),
        ({"double_buffered": True}, None, "double-buffered"),
        ({"double_buffered": False}, None, ""),
        ({"effective_options": {"multibuffer": False}}, None, "not double-buffered"),
        ({"effective_options": {"multibuffer": True}}, None, ""),
        ({"effective_options": {}}, None, ""),
        (PIPES, 8.0, "inward transfers busy 75% of the time"),
        (PIPES, None, ""),
        (PIPES | ARITHMETIC, 8.0, "inward transfers busy 75% of the time"),
        (ARITHMETIC, 8.0, "640.1 TFLOP/s, 64.7% of the peak"),
        ({"gb_s": 3456.0}, 8.0, "3.46 TB/s"),
        ({"gb_s": 3456.0}, 0.0, ""),
        (
            {"trust": {"class": "large product", "low": 0.6, "high": 1.6}},
            8.0,
            "modelled as large product: probably 0.6 to 1.6 times as long",
        ),
        (
            GRID | {"tail_rows": 0, "double_buffered": True} | PIPES,
            8.0,
            "40 programs on 40 cores, no tail rows, double-buffered, inward transfers busy 75% of the time",
        ),
    ],
)
def test_a_time_is_explained_in_one_sentence(facts, time_us, words):
    assert explanation(facts, time_us) == words


SUM = registry.load("row_reduce")
ROWS = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
CONFIG = {"BLOCK_SIZE_M": 20, "SUB_BLOCK_SIZE_M": 8, "BLOCK_SIZE_N": 256}
ASCEND = Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)
TIMING = Timing(
    time_us=40.0,
    p20_us=39.0,
    p80_us=42.0,
    samples=30,
    low_us=39.5,
    high_us=41.0,
    dropped=True,
    method="events",
    l2="cold",
    times_us=(39.0, 40.0, 42.0),
)


def test_the_evidence_of_a_run_is_its_division_its_findings_and_its_rate():
    """A thousand rows of 8192 numbers, a row of weights and a thousand results are 32.805 MB: 820.1 GB/s in 40 us."""
    found = evidence(SUM, ROWS, CONFIG, ASCEND, Outcome(Status.CORRECT, timing=TIMING, facts={"waves": 7}))
    assert found == {
        "programs": 50,
        "cores": 40,
        "waves": 7,
        "tail_rows": 4,
        "trips": 96,
        "times_us": [39.0, 40.0, 42.0],
        "gb_s": 820.1,
    }
    failed = evidence(SUM, ROWS, CONFIG, ASCEND, Outcome(Status.COMPILE, "too large"))
    assert failed.keys() == {"programs", "cores", "waves", "tail_rows", "trips"} and failed["waves"] == 2


def test_where_arithmetic_binds_its_rate_is_evidence():
    """2 * 8192 ** 3 operations in 2 ms are 549.8 TFLOP/s, of 989.4."""
    gemm, problem = registry.load("gemm"), Problem("gemm", {"M": 8192, "N": 8192, "K": 8192}, "float16")
    gpu = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90)
    outcome = Outcome(Status.CORRECT, timing=dataclasses.replace(TIMING, time_us=2000.0, times_us=()))
    found = evidence(gemm, problem, gemm.default(problem, gpu), gpu, outcome)
    assert (found["tflop_s"], found["share_of_peak"]) == (549.8, 0.5556)
    assert "times_us" not in found


def test_a_trial_keeps_all_of_its_timing_but_the_single_times():
    fields = timing_fields(TIMING)
    assert fields == {
        name: getattr(TIMING, name)
        for name in ("time_us", "p20_us", "p80_us", "samples", "low_us", "high_us", "dropped", "method", "l2")
    }
    assert timing_fields(None) == {}
    outcome = Outcome(Status.CORRECT, timing=TIMING)
    trial = trial_from_outcome(SUM, ROWS, CONFIG, ASCEND, outcome, facts={"faults": 1}, ordinal=3)
    assert {name: getattr(trial, name) for name in fields} == fields
    assert (trial.status, trial.ordinal, trial.facts["faults"], trial.config) == (Status.CORRECT, 3, 1, CONFIG)
    assert trial.why == "50 programs on 40 cores in 2 waves, 4 tail rows per program, 0.82 TB/s"
    assert "verified_by" not in trial.facts
    alone = trial_from_outcome(dataclasses.replace(SUM, reference=None), ROWS, CONFIG, ASCEND, outcome)
    assert alone.facts["verified_by"] == "self"


@pytest.mark.parametrize("time_us", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_time_is_the_devices_failure(time_us):
    outcome = Outcome(Status.CORRECT, timing=dataclasses.replace(TIMING, time_us=time_us), facts={"a": 1})
    trial = trial_from_outcome(SUM, ROWS, CONFIG, ASCEND, outcome)
    assert (trial.status, trial.reason) == (Status.RUNTIME, f"the device reported a time of {time_us} us")
    assert trial.time_us is None and trial.facts["a"] == 1


def test_a_success_without_a_time_is_a_failure_and_a_failure_stays_one():
    assert trial_from_outcome(SUM, ROWS, CONFIG, ASCEND, Outcome(Status.CORRECT)).status is Status.RUNTIME
    failed = trial_from_outcome(SUM, ROWS, CONFIG, ASCEND, Outcome(Status.COMPILE, "too large"))
    assert (failed.status, failed.reason) == (Status.COMPILE, "too large")
