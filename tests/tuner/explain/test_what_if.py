"""Option effects and suggested changes, compiled and timed on the formula kernel and on a modelled part."""

import pytest

from tilewise.db.records import Status
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.explain.what_if import _cured, _overflows, option_effects, suggest_changes
from tilewise.tuner.measure.outcome import Outcome, Timing

PROBLEM = Problem("bowl", {"M": 64}, "float32")


def evaluated(device, spec, problem, config):
    (outcome,) = device.evaluate(spec, problem, [config])
    return outcome


def test_a_switch_is_shown_the_other_way_round(bowl):
    device = bowl.FormulaDevice()
    outcome = evaluated(device, bowl.SPEC, PROBLEM, bowl.BEST)
    assert option_effects(device, bowl.SPEC, PROBLEM, bowl.BEST, outcome) == [
        {"option": "fast", "value": True, "other": False, "other_us": 12.0, "ratio": 1.2}
    ]


def test_a_switch_that_fails_the_other_way_round_says_why(bowl):
    device = bowl.FormulaDevice(lambda config: 10.0 if config["fast"] else Status.COMPILE)
    (row,) = option_effects(device, bowl.SPEC, PROBLEM, bowl.BEST, Outcome(Status.CORRECT, timing=Timing(10.0)))
    assert row["reason"] == "it is compile"
    assert "other_us" not in row


def test_an_option_that_the_compiler_dropped_is_told_apart_from_one_that_was_asked_for(bowl):
    dropped = Outcome(Status.CORRECT, timing=Timing(10.0), facts={"effective_options": {"fast": False}})
    (row,) = option_effects(bowl.FormulaDevice(), bowl.SPEC, PROBLEM, bowl.BEST, dropped)
    assert (row["value"], row["effective"]) == (True, False)


def test_one_step_that_helps_is_suggested(bowl):
    device = bowl.FormulaDevice()
    config = {"TILE": 7, "WIDTH": 64, "fast": True}
    (row,) = suggest_changes(device, bowl.SPEC, PROBLEM, config, evaluated(device, bowl.SPEC, PROBLEM, config))
    assert (row["parameter"], row["value"], row["instead_of"]) == ("TILE", 5, 7)
    assert (row["time_us"], row["ratio"]) == (10.0, 0.625)
    assert row["why"].startswith("13 programs on 8 cores")


def test_how_the_times_compare_is_told_to_a_ten_thousandth(bowl):
    device = bowl.FormulaDevice(lambda config: 7.0 if config["TILE"] == 5 and config["fast"] else 9.0)
    slow = {**bowl.BEST, "TILE": 6}
    (step,) = suggest_changes(device, bowl.SPEC, PROBLEM, slow, evaluated(device, bowl.SPEC, PROBLEM, slow))
    assert step["ratio"] == 0.7778
    (switch,) = option_effects(device, bowl.SPEC, PROBLEM, bowl.BEST, evaluated(device, bowl.SPEC, PROBLEM, bowl.BEST))
    assert switch["ratio"] == 1.2857


def test_at_the_optimum_nothing_is_suggested(bowl):
    device = bowl.FormulaDevice()
    assert (
        suggest_changes(device, bowl.SPEC, PROBLEM, bowl.BEST, evaluated(device, bowl.SPEC, PROBLEM, bowl.BEST)) == []
    )


def test_a_gain_too_small_to_trust_is_not_suggested(bowl):
    device = bowl.FormulaDevice(lambda config: 10.0 - 0.01 * config["TILE"])
    assert (
        suggest_changes(device, bowl.SPEC, PROBLEM, bowl.BEST, evaluated(device, bowl.SPEC, PROBLEM, bowl.BEST)) == []
    )


def test_neighbours_that_break_a_rule_are_not_compiled(bowl):
    device = bowl.FormulaDevice()
    config = {"TILE": 4, "WIDTH": 256, "fast": True}
    suggest_changes(device, bowl.SPEC, PROBLEM, config, evaluated(device, bowl.SPEC, PROBLEM, config))
    assert all(other["TILE"] * other["WIDTH"] <= 1024 for other in device.evaluated)
    assert len(device.evaluated) > 1


@pytest.fixture(scope="module")
def part():
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    pytest.importorskip("torch")
    from tilewise.tuner.devices.ascend_model.device import ModelDevice

    with ModelDevice("Ascend910B4", jobs=1) as device:
        yield device


@pytest.fixture(scope="module")
def headline(part):
    from tilewise.kernels import registry

    spec = registry.load("row_reduce")
    problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")

    def ask(block, sub, cols):
        config = {"BLOCK_SIZE_M": block, "SUB_BLOCK_SIZE_M": sub, "BLOCK_SIZE_N": cols, "multibuffer": True}
        return suggest_changes(part, spec, problem, config, evaluated(part, spec, problem, config))

    return ask


def test_a_smaller_tile_that_keeps_double_buffering_is_found_by_compiling_it(headline):
    rows = headline(25, 5, 2048)
    assert {(row["parameter"], row["value"]) for row in rows} == {("BLOCK_SIZE_N", 1024), ("SUB_BLOCK_SIZE_M", 4)}
    assert [row["time_us"] for row in rows] == sorted(row["time_us"] for row in rows)
    for row in rows:
        assert row["cures"] == "it keeps double buffering; the given tile takes 188 of 192 KiB even without it"
        assert row["ratio"] < 1


@pytest.mark.full
def test_a_tile_that_overflows_is_told_the_next_that_fits(headline):
    rows = headline(25, 12, 1024)
    assert rows
    assert all(row["cures"] == "it fits; the given tile is 4 KiB larger than the 192 KiB on chip" for row in rows)
    assert all("ratio" not in row for row in rows)  # an overflowing tile has no time to compare with


KIB = 8192


@pytest.mark.parametrize(
    ("status", "bits", "overflows"),
    [
        (Status.COMPILE, {"required": 2, "available": 1}, True),
        (Status.COMPILE, {"required": 1, "available": 1}, False),
        (Status.COMPILE, {"required": 1}, True),
        (Status.COMPILE, {}, False),
        (Status.CORRECT, {"required": 2, "available": 1}, False),
    ],
)
def test_a_config_overflows_if_it_does_not_compile_for_its_size(status, bits, overflows):
    assert _overflows(Outcome(status, facts={"on_chip_bits": bits})) is overflows


@pytest.mark.parametrize(
    ("status", "options", "cure"),
    [
        (Status.COMPILE, {}, "it fits; the given tile is 64 KiB larger than the 192 KiB on chip"),
        (
            Status.CORRECT,
            {"multibuffer": False},
            "it keeps double buffering; the given tile takes 256 of 192 KiB even without it",
        ),
        (Status.CORRECT, {"multibuffer": True}, ""),
        (Status.CORRECT, {}, ""),
    ],
)
def test_a_suggestion_says_in_kib_what_it_cures(status, options, cure):
    facts = {"on_chip_bits": {"required": 256 * KIB, "available": 192 * KIB}, "effective_options": options}
    assert _cured({"multibuffer": True}, Outcome(status, facts=facts)) == cure
    assert _cured({}, Outcome(Status.CORRECT, facts=facts)) == ""
