"""Published products are timed with the figures that were not fitted to them."""

import dataclasses
import math

import pytest

from tilewise.benchmarks.model.judge.cube_cases import cube_cases
from tilewise.benchmarks.model.judge.cube_judgement import judged, summary
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain

CASES = {case.name: case for case in cube_cases()}


@pytest.fixture(scope="module")
def folder():
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    return read_settings().cache_folder


def test_every_case_has_a_source_and_a_time():
    assert all(case.source and case.published_us > 0 and case.configs for case in CASES.values())


def test_a_small_product_is_timed_and_compared(folder):
    row = judged(CASES["catlass_case3 16x32"], folder)
    assert row["ln_error"] == pytest.approx(math.log(row["modelled_us"] / row["published_us"]), abs=1e-3)
    assert set(row["busy"]) == {"S", "MTE2", "MTE1", "M", "FIX"}


def test_work_that_is_not_divided_evenly_takes_the_busiest_cores_time(folder):
    case = CASES["kb_matmul_6_large_k"]
    even, uneven = (judged(dataclasses.replace(case, busiest=share), folder)["modelled_us"] for share in (1.0, 1.25))
    assert uneven == pytest.approx(1.25 * even, abs=0.01)


def test_an_element_wise_product_is_timed_without_the_figure_that_was_fitted_to_it(folder):
    case = CASES["tutorial 32"]
    fitted = judged(dataclasses.replace(case, fitted={}), folder)
    assert judged(case, folder)["modelled_us"] > 1.5 * fitted["modelled_us"]


@pytest.mark.full
def test_attention_is_timed_on_both_kinds_of_core(folder):
    row = judged(CASES["pto_flash 1024"], folder)
    assert row["tiles"] == [[128, 128], [128, 256]]
    assert {"V", "M", "FIX"} <= set(row["busy"])


def test_the_summary_is_by_kind_and_the_large_ones_by_source():
    rows = [
        {"kind": "large", "source": "a", "ln_error": 0.1},
        {"kind": "large", "source": "b", "ln_error": -0.3},
        {"kind": "small", "source": "a", "ln_error": 0.5},
    ]
    assert summary(rows) == {
        "large": {"timings": 2, "mean_ln_error": 0.2},
        "small": {"timings": 1, "mean_ln_error": 0.5},
        "large, a": {"timings": 1, "mean_ln_error": 0.1},
        "large, b": {"timings": 1, "mean_ln_error": 0.3},
    }
