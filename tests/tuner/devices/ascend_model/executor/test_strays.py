"""Reads outside a tensor: a warning where a mask throws the values away, and a wrong answer where it does not."""

import pytest
from places import HELPERS

from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.executor.verification import verify_compiled
from tilewise.tuner.devices.ascend_model.model_config import model_config

CONFIG = {"ROWS": 8}


@pytest.fixture(scope="module")
def verdict(target, cache_folder):
    def verify(name, dtype="float32"):
        spec = registry.load(f"{HELPERS / 'stray_kernels.py'}:{name}")
        problem = Problem(spec.name, {"M": 19, "N": 64}, dtype)
        return verify_compiled(spec, problem, CONFIG, target, cache_folder)

    return verify


@pytest.mark.in_part(1)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_read_that_a_mask_throws_away_is_a_warning_with_line_and_element(verdict, dtype):
    found = verdict("DIFFERENCES", dtype)
    assert found.agreed, found.reason
    assert any("uses element -64 of x_ptr" in warning for warning in found.warnings)
    for warning in found.warnings:
        assert "load (stray_kernels.py:" in warning
        assert "of x_ptr, which has" in warning
        assert warning.endswith("; a mask throws it away")


def test_a_read_that_the_result_depends_on_is_wrong(verdict):
    found = verdict("DIFFERENCES_WITHOUT_MASK")
    assert (found.agreed, found.status) == (False, Status.CORRECTNESS)
    assert "uses element -64 of x_ptr" in found.reason


@pytest.mark.in_part(1)
@pytest.mark.parametrize("cols", [64, 96])
def test_cumulative_sums_are_modelled(target, cache_folder, cols):
    spec = registry.load(f"{HELPERS / 'stray_kernels.py'}:RUNNING_SUMS")
    problem = Problem(spec.name, {"M": 19, "N": cols}, "float32")
    outcome, _ = model_config(spec, problem, CONFIG, target, cache_folder)
    assert outcome.status is Status.CORRECT, outcome.reason
    found = verify_compiled(spec, problem, CONFIG, target, cache_folder)
    assert found.agreed, found.reason


def test_a_scalar_read_is_over_before_a_later_transfer_to_its_place(verdict):
    found = verdict("SCALED_BY_FIRST")
    assert found.agreed, found.reason
