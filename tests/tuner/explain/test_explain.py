"""The explanation of one config: the JSON of `explain`, and the sentence that says why."""

import json
from dataclasses import replace

import pytest

from tilewise.db.records import Status, Trial
from tilewise.errors import BadConfig
from tilewise.kernels.spec import Parameter, Problem, Target
from tilewise.tuner.devices.ascend_model.clock.core import PIPES
from tilewise.tuner.explain.explain import explain
from tilewise.tuner.measure.outcome import Outcome, Timing
from tilewise.tuner.prior.penalties import penalties, score
from tilewise.tuner.tuning.evidence import PIPE_NAMES, evidence, explanation

PROBLEM = Problem("bowl", {"M": 64}, "float32")


def test_a_config_that_runs_is_explained_with_its_time(bowl):
    body = explain(bowl.FormulaDevice(), bowl.SPEC, PROBLEM, bowl.BEST)
    factors = penalties(bowl.SPEC, PROBLEM, bowl.BEST, bowl.TARGET)
    assert body == {
        "kernel": "bowl",
        "dims": {"M": 64},
        "dtype": "float32",
        "device": "Bowl",
        "clock": "modelled",
        "toolchain": "formula 1",
        "config": bowl.BEST,
        "feasible": True,
        "reason": "",
        "programs": 13,
        "cores": 8,
        "waves": 2,
        "tail_rows": 0,
        "trips": 8,
        "gb_s": 0.0,
        "penalties": {name: pytest.approx(factor, abs=1e-4) for name, factor in factors.items()},
        "prior_score": pytest.approx(score(factors), abs=1e-4),
        "time_us": 10.0,
        "why": "13 programs on 8 cores in 2 waves, no tail rows, 0.00 TB/s",
    }
    assert json.loads(json.dumps(body)) == body


def test_a_config_that_breaks_a_rule_is_explained_without_running(bowl):
    device = bowl.FormulaDevice()
    body = explain(device, bowl.SPEC, PROBLEM, {"TILE": 10, "WIDTH": 256, "fast": True})
    assert (body["feasible"], body["reason"]) == (False, "breaks the rule: TILE * WIDTH <= 1024")
    assert body["penalties"]["waves"] > 1
    assert not body.keys() & {"time_us", "why", "gb_s", "floor_us"}
    assert not device.evaluated


def test_a_config_that_does_not_compile_is_explained_with_the_reason(bowl):
    body = explain(bowl.FormulaDevice(lambda config: Status.COMPILE), bowl.SPEC, PROBLEM, bowl.BEST)
    assert (body["feasible"], body["reason"]) == (False, "it is compile")
    assert "time_us" not in body


def test_a_floor_is_told_where_the_device_knows_one(bowl, monkeypatch):
    monkeypatch.setattr(bowl.FormulaDevice, "floor_us", lambda self, spec, problem: 1.23456)
    assert explain(bowl.FormulaDevice(), bowl.SPEC, PROBLEM, bowl.BEST)["floor_us"] == 1.235


def test_the_rate_of_a_kernel_that_its_arithmetic_bounds_stands_beside_the_peak(bowl):
    """At 989.4 TFLOP/s, 1978.8 GFLOP take 2 ms: half the peak in 4 ms. Few products are bound by memory."""
    device = bowl.FormulaDevice(lambda config: 4000.0)
    device.target = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90)
    product = replace(bowl.SPEC, matrix_dtype=lambda problem: "float16", flops=lambda problem: 1978.8e9)
    body = explain(device, product, PROBLEM, bowl.BEST)
    assert (body["arithmetic_us"], body["peak_tflop_s"], body["tflop_s"]) == (2000.0, 989.4, 494.7)
    light = explain(device, replace(product, flops=lambda problem: 1), PROBLEM, bowl.BEST)
    assert not light.keys() & {"arithmetic_us", "peak_tflop_s"}


def test_an_explanation_compares_the_variants_by_stored_times(bowl):
    variant = Parameter("VARIANT", lambda problem, target: ["plain", "split"])
    spec = replace(bowl.SPEC, parameters=(*bowl.SPEC.parameters, variant))
    configs = [{**bowl.BEST, "VARIANT": name} for name in ("plain", "split")]
    trials = [Trial(config, Status.CORRECT, time_us=time) for config, time in zip(configs, (30.0, 20.0), strict=True)]
    (found,) = explain(bowl.FormulaDevice(), spec, PROBLEM, configs[0], trials)["variants"]
    assert found["says"] == "split is fastest here, 20.00 us; plain 30.00 us (1.50x)"
    assert [side["from"] for side in found["sides"]] == ["stored", "stored"]


def test_what_is_no_config_is_refused(bowl):
    with pytest.raises(BadConfig):
        explain(bowl.FormulaDevice(), bowl.SPEC, PROBLEM, {"TILE": 1})


def test_evidence_holds_the_rate_of_the_least_traffic(bowl):
    problem = Problem("bowl", {"M": 10**6}, "float32")
    timed = Outcome(Status.CORRECT, timing=Timing(100.0), facts={"spills": 3})
    facts = evidence(bowl.SPEC, problem, bowl.BEST, bowl.TARGET, timed)
    assert (facts["gb_s"], facts["spills"]) == (40.0, 3)  # 4 MB in 100 us
    assert "gb_s" not in evidence(bowl.SPEC, problem, bowl.BEST, bowl.TARGET, Outcome(Status.COMPILE, "no"))


FACTS = {"programs": 40, "cores": 40, "waves": 1, "tail_rows": 0}


@pytest.mark.parametrize(
    ("facts", "time_us", "text"),
    [
        ({}, None, ""),
        (FACTS, None, "40 programs on 40 cores, no tail rows"),
        ({**FACTS, "programs": 50, "waves": 2}, None, "50 programs on 40 cores in 2 waves, no tail rows"),
        ({**FACTS, "tail_rows": 1}, None, "40 programs on 40 cores, 1 tail row per program"),
        ({**FACTS, "tail_rows": 3}, None, "40 programs on 40 cores, 3 tail rows per program"),
        ({"double_buffered": True}, None, "double-buffered"),
        ({"double_buffered": False, "effective_options": {"multibuffer": True}}, None, ""),
        (
            {"double_buffered": False, "effective_options": {"multibuffer": False}},
            None,
            "not double-buffered",
        ),
        ({"gb_s": 4160.0}, 128.9, "4.16 TB/s"),
        (
            {**FACTS, "double_buffered": True, "pipes_us": {"V": 40.5, "MTE2": 20}, "bound_by": "V", "gb_s": 690},
            50.0,
            "40 programs on 40 cores, no tail rows, double-buffered, vector pipe busy 81% of the time",
        ),
    ],
)
def test_the_sentence_names_what_is_known(facts, time_us, text):
    assert explanation(facts, time_us) == text


def test_every_pipe_of_the_model_has_a_name():
    assert set(PIPE_NAMES) == set(PIPES)
