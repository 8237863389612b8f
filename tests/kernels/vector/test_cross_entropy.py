"""Cross entropy: values worked out on paper, ignored rows, extreme logits."""

import importlib.util
import math

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.kernels.vector.cross_entropy import IGNORED
from tilewise.tuner.measure.verify import Arguments

PROBLEM = Problem("cross_entropy", {"M": 5, "N": 4}, "float32")
LOGITS = torch.tensor(
    [
        [0.0, 0.0, 0.0, 0.0],
        [1000.0, 0.0, 0.0, 0.0],
        [0.0, -1000.0, 0.0, 0.0],
        [5.0, 5.0, 5.0, 5.0],
        [1.0, 2.0, 3.0, 4.0],
    ]
)
TARGETS = torch.tensor([2, 0, 1, IGNORED, 3])
LAST = math.log(sum(math.exp(-n) for n in range(4)))
WANTED = torch.tensor([math.log(4), 0.0, 1000 + math.log(3), 0.0, LAST])
TILES = {"BLOCK_SIZE_M": 3, "SUB_BLOCK_SIZE_M": 2, "multibuffer": True}


def test_the_reference_is_the_formula():
    spec = registry.load("cross_entropy")
    found = spec.reference({"x_ptr": LOGITS.double(), "target_ptr": TARGETS})["loss_ptr"]
    assert torch.allclose(found, WANTED.double(), atol=1e-6)


@pytest.mark.parametrize(("variant", "cols"), [("one_load", 4), ("one_load", 8), ("looped", 2), ("looped", 3)])
def test_the_loss_is_the_log_of_the_sum_less_the_targets_logit(normalisations, variant, cols):
    config = {"VARIANT": variant, **TILES, "BLOCK_SIZE_N": cols}
    given = {"x_ptr": LOGITS, "target_ptr": TARGETS}
    found = normalisations("on", "cross_entropy", PROBLEM, config, given)["loss_ptr"]
    assert torch.allclose(found, WANTED, atol=1e-5)


@pytest.mark.parametrize(("variant", "cols"), [("one_load", 4), ("looped", 2)])
def test_a_logit_that_is_not_a_number_makes_its_rows_loss_one(normalisations, variant, cols):
    logits = LOGITS.clone()
    logits[4, 0] = float("nan")
    config = {"VARIANT": variant, **TILES, "BLOCK_SIZE_N": cols}
    given = {"x_ptr": logits, "target_ptr": TARGETS}
    found = normalisations("on", "cross_entropy", PROBLEM, config, given)["loss_ptr"]
    assert found.isnan().tolist() == [False, False, False, False, True]


def test_targets_are_drawn_within_the_classes_and_some_ignored():
    arguments = Arguments(registry.load("cross_entropy"), Problem("cross_entropy", {"M": 100, "N": 9}, "float32"))
    targets = arguments.tensors["target_ptr"]
    assert sorted(set(targets.tolist())) == [IGNORED, *range(9)]
