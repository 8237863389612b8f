"""RMS normalisation: values worked out on paper, and the least bytes."""

import importlib.util

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.kernels.vector.rms_norm import EPS

TILES = {"BLOCK_SIZE_M": 2, "SUB_BLOCK_SIZE_M": 1, "multibuffer": True}
CONFIGS = [
    {"VARIANT": "one_load", **TILES, "BLOCK_SIZE_N": 4},
    {"VARIANT": "one_load", **TILES, "BLOCK_SIZE_N": 8},
    {"VARIANT": "looped", **TILES, "BLOCK_SIZE_N": 2},
]
ROWS = torch.tensor([[3.0, -3.0, 3.0, -3.0], [0.0, 0.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]])
WEIGHTS = torch.tensor([1.0, 2.0, -1.0, 0.5])
WANTED = [[1.0, -2.0, -1.0, -0.5], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
"""The roots of the mean squares are 3, 2 and sqrt(EPS); a row of zeros stays one."""


def test_the_reference_is_the_formula():
    spec = registry.load("rms_norm")
    found = spec.reference({"x_ptr": ROWS.double(), "w_ptr": WEIGHTS.double()})["out_ptr"]
    assert found.flatten().tolist() == pytest.approx([number for row in WANTED for number in row], abs=EPS)


@pytest.mark.parametrize("config", CONFIGS, ids=["one_load", "padded", "looped"])
def test_rows_are_divided_by_the_root_of_their_mean_square(normalisations, config):
    problem = Problem("rms_norm", {"M": 3, "N": 4}, "float32")
    found = normalisations("on", "rms_norm", problem, config, {"x_ptr": ROWS, "w_ptr": WEIGHTS})
    assert torch.allclose(found["out_ptr"], torch.tensor(WANTED), atol=1e-5)


@pytest.mark.parametrize("config", CONFIGS, ids=["one_load", "padded", "looped"])
def test_the_sum_with_the_residual_is_kept_and_normalised(normalisations, config):
    problem = Problem("add_rms_norm", {"M": 3, "N": 4}, "float32")
    residual = torch.arange(12.0).reshape(3, 4)
    given = {"x_ptr": ROWS - residual, "residual_ptr": residual, "w_ptr": WEIGHTS}
    found = normalisations("on", "add_rms_norm", problem, config, given)
    assert torch.allclose(found["sum_ptr"], ROWS, atol=1e-5)
    assert torch.allclose(found["out_ptr"], torch.tensor(WANTED), atol=1e-5)


@pytest.mark.parametrize(("name", "tensors"), [("rms_norm", 2), ("add_rms_norm", 4)])
def test_each_tensor_moves_once(name, tensors):
    assert registry.load(name).bytes(Problem(name, {"M": 5, "N": 7}, "bfloat16")) == 2 * (tensors * 35 + 7)
