"""Deviations from float64: our kernels in Triton's interpreter, and torch's own."""

import pytest

from tilewise.benchmarks.model.accuracy import CASES, bench_accuracy
from tilewise.errors import UsageError
from tilewise.tuner.devices.ascend_model import toolchain


@pytest.fixture(scope="module")
def rows():
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    from tilewise.tuner.devices.ascend_model.device import ModelDevice

    with ModelDevice("Ascend910B4") as opened:
        body = bench_accuracy(opened)
    assert body["run_by"] == "Triton's interpreter"
    return body["rows"]


@pytest.mark.full
def test_every_variant_of_every_case_is_there(rows):
    seen = {(row["kernel"], row["variant"]) for row in rows}
    assert {("layer_norm", "one_load"), ("layer_norm", "looped")} <= seen
    assert {("batch_norm", "two_passes"), ("batch_norm", "three_passes")} <= seen
    assert {row["kernel"] for row in rows} == {case.kernel for case in CASES}


@pytest.mark.full
def test_normalisations_far_from_zero_are_no_further_off_than_torchs(rows):
    for row in rows:
        if row["data"].startswith("mean"):
            assert row["error"]["y"] < min(1e-5, row["torch_error"]["y"]), row
            assert row["error"]["mean"] <= 2**-24 * 1e4 + row["torch_error"]["mean"], row
            assert row["error"]["rstd"] <= 1e-6, row


@pytest.mark.full
def test_the_forms_of_gelu_are_as_far_off_as_they_say(rows):
    off = {row["kernel"]: row["error"]["out"] for row in rows if row["kernel"].startswith("gelu")}
    assert off["gelu_erf"] < 2e-6
    assert 4e-4 < off["gelu_tanh"] < 5e-4
    assert 2e-3 < off["gelu_rational"] < 2.2e-3 + 5e-4


def test_a_device_that_runs_no_triton_is_refused():
    with pytest.raises(UsageError, match="bench accuracy runs on cuda or model:PART, not on replay:file"):
        bench_accuracy(type("Other", (), {"id": "replay:file"})())
