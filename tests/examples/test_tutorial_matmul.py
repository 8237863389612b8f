"""examples/tutorial_matmul.py on a modelled part: it is tuned to a right winner, and lint names the wrapping first."""

import pytest
from places import ROOT

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.tuning.tune import tune

FILE = f"{ROOT / 'examples' / 'tutorial_matmul.py'}:MATMUL"
ODD = {"M": 75, "N": 100, "K": 70}
TILE = {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}


@pytest.fixture(scope="module")
def device():
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    with ModelDevice("Ascend910B4", jobs=1, cache_folder=read_settings().cache_folder) as device:
        yield device


def test_the_wrapped_product_agrees_with_float64_where_tiles_wrap_around(device):
    verdict = device.verify(registry.load(FILE), Problem("tutorial_matmul", ODD, "float16"), TILE)
    assert verdict.agreed, verdict.reason


def test_a_product_that_stops_wrapping_too_early_is_refused(device, tmp_path):
    text = (ROOT / "examples" / "tutorial_matmul.py").read_text()
    assert "% N\n" in text
    (tmp_path / "early.py").write_text(text.replace("% N\n", "% (N - 1)\n"))
    spec = registry.load(f"{tmp_path / 'early.py'}:MATMUL")
    verdict = device.verify(spec, Problem("tutorial_matmul", ODD, "float16"), TILE)
    assert not verdict.agreed


@pytest.mark.full
def test_tuning_ends_with_a_verified_winner(device):
    result = tune(FILE, ODD, dtype="float16", device=device, trials=2, db="sqlite://")
    assert result["verified"] is True
    assert result["time_us"] > 0


def test_lint_names_the_wrapping_as_what_costs_most(device):
    problem = Problem("tutorial_matmul", {"M": 512, "N": 512, "K": 512}, "float16")
    spec = registry.load(FILE)
    found = device.lint(spec, problem, spec.default(problem, device.target))
    first, second, *others = found.findings
    for finding in (first, second):
        assert finding.rule.id == "element-access"
        assert "wrapped by a remainder (%)" in finding.message
        assert "% M" in finding.cause.text or "% N" in finding.cause.text
        assert finding.cost_us > 0.3 * found.time_us
    assert all(other.cost_us < first.cost_us for other in others)
