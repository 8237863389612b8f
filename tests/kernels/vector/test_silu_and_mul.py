"""The gated activation: values worked out on paper."""

import importlib.util

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem

PROBLEM = Problem("silu_and_mul", {"M": 3, "N": 2}, "float32")
X = torch.tensor([[0.0, 1.0, 5.0, 2.0], [-1.0, 100.0, 3.0, 0.5], [-200.0, 2.0, 7.0, 0.0]])
WANTED = torch.tensor([[0.0, 2 * 0.7310586], [-3 * 0.2689414, 50.0], [0.0, 0.0]])
"""silu(1) is 0.7310586 and silu(-1) is -0.2689414; far from zero it is the number itself, or 0."""


def test_the_reference_multiplies_the_silu_of_the_first_half_by_the_second():
    assert torch.allclose(registry.load("silu_and_mul").reference({"x_ptr": X})["out_ptr"], WANTED, atol=1e-6)


@pytest.mark.parametrize(("rows", "cols"), [(1, 2), (2, 1), (4, 2), (2, 4)])
def test_the_silu_of_the_first_half_is_multiplied_by_the_second(normalisations, rows, cols):
    config = {"BLOCK_SIZE_M": 4, "SUB_BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": cols, "multibuffer": True}
    found = normalisations("on", "silu_and_mul", PROBLEM, config, {"x_ptr": X})["out_ptr"]
    assert torch.allclose(found, WANTED, atol=1e-6)


def test_a_gate_that_is_not_a_number_spoils_its_element_only(normalisations):
    x = X.clone()
    x[0, 1] = float("nan")
    config = {"BLOCK_SIZE_M": 2, "SUB_BLOCK_SIZE_M": 2, "BLOCK_SIZE_N": 2, "multibuffer": True}
    found = normalisations("on", "silu_and_mul", PROBLEM, config, {"x_ptr": x})["out_ptr"]
    assert found.isnan().nonzero().tolist() == [[0, 1]]
