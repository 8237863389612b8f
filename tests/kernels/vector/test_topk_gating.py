"""Gating: values worked out on paper, ties, and both kinds of weights."""

import importlib.util
import math

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch

from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.space.search_space import enumerate_space

LOGITS = torch.tensor([[0.0, math.log(3), math.log(2), 0.0], [5.0, 5.0, 5.0, 5.0], [-200.0, -300.0, 200.0, -200.0]])
IDS = [[1, 2, 0], [0, 1, 2], [2, 0, 3]]
CHOSEN = torch.tensor([[3 / 6, 2 / 6, 1 / 6], [1 / 3] * 3, [1.0, 0.0, 0.0]])
OF_ALL = torch.tensor([[3 / 7, 2 / 7, 1 / 7], [1 / 4] * 3, [1.0, 0.0, 0.0]])
DIMS = {"M": 3, "E": 4, "TOPK": 3}


@pytest.mark.parametrize(("flags", "weights"), [({}, CHOSEN), ({"renormalise": False}, OF_ALL)])
@pytest.mark.parametrize(("rows", "experts"), [(1, 4), (2, 4), (4, 8)])
def test_the_largest_are_chosen_in_order_and_of_equals_the_first(normalisations, flags, weights, rows, experts):
    config = {"BLOCK_SIZE_M": 4, "SUB_BLOCK_SIZE_M": rows, "BLOCK_SIZE_E": experts, "multibuffer": True}
    problem = Problem("topk_gating", DIMS, "float32", flags)
    found = normalisations("on", "topk_gating", problem, config, {"x_ptr": LOGITS})
    assert found["id_ptr"].tolist() == IDS
    assert torch.allclose(found["weight_ptr"], weights, atol=1e-6)


@pytest.mark.parametrize(("flags", "weights"), [({}, CHOSEN), ({"renormalise": False}, OF_ALL)])
def test_the_reference_is_the_formula(flags, weights):
    problem = Problem("topk_gating", DIMS, "float32", flags)
    found = registry.load("topk_gating").reference_of(problem)({"x_ptr": LOGITS.double()})
    assert found["id_ptr"].tolist() == IDS
    assert torch.allclose(found["weight_ptr"], weights.double(), atol=1e-6)


def test_more_experts_cannot_be_chosen_than_there_are(target):
    problem = Problem("topk_gating", {"M": 8, "E": 4, "TOPK": 5}, "float32")
    with pytest.raises(NothingFeasible, match="TOPK <= E"):
        enumerate_space(registry.load("topk_gating"), problem, target)
