"""Rotary position embedding: values worked out on paper."""

import importlib.util
import math

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem

PROBLEM = Problem("rotary", {"M": 3, "H": 2, "HALF": 2}, "float32")
X = torch.tensor([1.0, 2.0, 3.0, 4.0]).repeat(3, 2, 1) * torch.tensor([1.0, -1.0])[:, None]
ANGLES = torch.tensor([[0.0, 0.0], [math.pi / 2, 0.0], [math.pi, math.pi / 2]])
WANTED = torch.tensor([[1.0, 2.0, 3.0, 4.0], [-3.0, 2.0, 1.0, 4.0], [-1.0, -4.0, -3.0, 2.0]])
"""The pairs (1, 3) and (2, 4) of the first head, turned by each token's two angles; the second head is its negative."""


def given():
    return {"x_ptr": X, "cos_ptr": ANGLES.cos(), "sin_ptr": ANGLES.sin()}


def test_the_reference_turns_each_pair_by_its_angle():
    found = registry.load("rotary").reference(given())["out_ptr"]
    assert torch.allclose(found[:, 0], WANTED, atol=1e-5)
    assert torch.equal(found[:, 1], -found[:, 0])


@pytest.mark.parametrize(("rows", "heads", "pairs"), [(1, 2, 2), (2, 1, 2), (4, 4, 4), (2, 2, 1)])
def test_each_pair_is_turned_by_its_angle(normalisations, rows, heads, pairs):
    tiles = {"BLOCK_SIZE_M": 3, "SUB_BLOCK_SIZE_M": rows, "BLOCK_SIZE_H": heads, "BLOCK_SIZE_N": pairs}
    found = normalisations("on", "rotary", PROBLEM, {**tiles, "multibuffer": True}, given())["out_ptr"]
    assert torch.allclose(found[:, 0], WANTED, atol=1e-5)
    assert torch.allclose(found[:, 1], -WANTED, atol=1e-5)


def test_lengths_of_pairs_are_kept():
    x = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = registry.load("rotary").reference({**given(), "x_ptr": x})["out_ptr"]
    before, after = (torch.hypot(t[..., :2], t[..., 2:]) for t in (x, y))
    assert torch.allclose(before, after, atol=1e-6)
