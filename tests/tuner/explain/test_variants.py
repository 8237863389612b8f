"""The comparison of variants at one shape: from stored trials, or else from a few configs timed now."""

import pytest

from tilewise.db.records import Status, Trial
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.explain.variants import _sentence, compare_variants


@pytest.fixture(scope="module")
def device():
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    from tilewise.tuner.devices.ascend_model.device import ModelDevice

    with ModelDevice("Ascend910B4") as opened:
        yield opened


def trial(config, time_us, status=Status.CORRECT):
    return Trial(config=config, status=status, time_us=time_us)


def test_a_kernel_without_variants_stands_on_no_side(device):
    spec = registry.load("row_reduce")
    assert compare_variants(device, spec, Problem(spec.name, {"M": 64, "N": 512}, "float32"), []) == []


def test_stored_times_go_before_new_ones_and_failed_trials_count_for_nothing(device):
    spec = registry.load("softmax")
    problem = Problem(spec.name, {"M": 1000, "N": 1024}, "float32")
    stored = [
        trial({"VARIANT": "one_load", "A": 1}, 30.0),
        trial({"VARIANT": "one_load", "A": 2}, 1.0, Status.CORRECTNESS),
        trial({"VARIANT": "online", "A": 1}, 10.0),
        trial({"VARIANT": "online", "A": 2}, 20.0),
    ]
    (found,) = compare_variants(device, spec, problem, stored)
    assert found["parameter"] == "VARIANT"
    assert [(side["value"], side["time_us"], side["from"]) for side in found["sides"]] == [
        ("online", 10.0, "stored"),
        ("one_load", 30.0, "stored"),
    ]
    assert found["says"] == "online is fastest here, 10.00 us; one_load 30.00 us (3.00x)"


def test_a_variant_never_tried_is_timed_now(device):
    spec = registry.load("softmax")
    problem = Problem(spec.name, {"M": 1000, "N": 1024}, "float32")
    (found,) = compare_variants(device, spec, problem, [])
    assert [side["value"] for side in found["sides"]] == ["one_load", "online"]
    assert all(side["from"] == "timed now" for side in found["sides"])


def test_where_one_variant_is_left_there_is_no_crossover(device):
    spec = registry.load("softmax")
    assert compare_variants(device, spec, Problem(spec.name, {"M": 8, "N": 200_000}, "float32"), []) == []


def side(value, time_us):
    return {"value": value, "time_us": time_us}


@pytest.mark.parametrize(
    ("sides", "says"),
    [
        ([], "no variant runs"),
        ([side("looped", 9.0)], "looped is the only variant that runs"),
        (
            [side("looped", 8.0), side("one_load", 10.0), side("other", 16.126)],
            "looped is fastest here, 8.00 us; one_load 10.00 us (1.25x), other 16.13 us (2.02x)",
        ),
    ],
)
def test_the_sentence_names_the_fastest_and_how_far_the_others_are_behind(sides, says):
    assert _sentence(sides) == says
