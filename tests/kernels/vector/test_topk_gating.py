"""Gating: values worked out on paper, ties, and both kinds of weights."""

import importlib.util
import math

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch

from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem, Target
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


# One row per thread, in Gluon -------------------------------------------------------------------------------------

H200 = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, capability=90)


def sorting(dims, dtype="bfloat16", target=H200):
    """The configs of `sorted` for a problem."""
    spec = registry.load("topk_gating")
    configs = enumerate_space(spec, Problem("topk_gating", dims, dtype), target).configs
    return [config for config in configs if config.get("VARIANT") == "sorted"]


@pytest.mark.parametrize(
    ("experts", "dtype", "parts"),
    [
        (8, "bfloat16", {8}),
        (100, "float16", {32, 64, 128}),
        (128, "float32", {32, 64}),
        (256, "bfloat16", {32, 64}),
        (65536, "float16", {32, 64}),
        (65537, "float16", set()),  # an expert's number has 16 bits beside a logit of 16
        (65537, "float32", {32, 64}),
    ],
)
def test_a_thread_sorts_parts_that_its_registers_hold(experts, dtype, parts):
    configs = sorting({"M": 4096, "E": experts, "TOPK": 6}, dtype)
    assert {config["BLOCK_SIZE_E"] for config in configs} == parts
    assert all(config["BLOCK_SIZE_M"] == 32 * config["num_warps"] for config in configs)


@pytest.mark.parametrize(
    ("chosen", "target"),
    [
        (17, H200),
        (8, Target("nvidia", "an older GPU", 80, 98304, 16, 2**31 - 1, capability=75)),
        (8, Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)),
    ],
)
def test_other_choices_and_devices_have_no_sorting_variant(chosen, target):
    assert sorting({"M": 4096, "E": 128, "TOPK": chosen}, "float32", target) == []


def test_the_default_sorts_where_its_programs_fill_the_gpu():
    spec = registry.load("topk_gating")
    few, many = (
        spec.default(Problem("topk_gating", {"M": m, "E": 256, "TOPK": 8}, "bfloat16"), H200) for m in (16895, 16896)
    )
    assert few["VARIANT"] == "selected"
    assert (many["VARIANT"], many["BLOCK_SIZE_E"]) == ("sorted", 64)


@pytest.mark.parametrize(
    ("chosen", "part", "sizes"),
    [
        (1, 32, {"CHOSEN": 1, "LOG_K": 0, "LOG_RUNS": 5, "FITS_E": False}),
        (6, 64, {"CHOSEN": 6, "LOG_K": 3, "LOG_RUNS": 3, "FITS_E": False}),
        (8, 128, {"CHOSEN": 8, "LOG_K": 3, "LOG_RUNS": 4, "FITS_E": True}),
    ],
)
def test_a_part_is_cut_into_runs_as_long_as_the_choice(chosen, part, sizes):
    problem = Problem("topk_gating", {"M": 1000, "E": 100, "TOPK": chosen}, "bfloat16")
    tile = {"BLOCK_SIZE_M": 64, "SUB_BLOCK_SIZE_M": 64, "BLOCK_SIZE_E": part}
    (step,) = registry.load("topk_gating").plan({"VARIANT": "sorted", **tile, "num_warps": 2, "NUM_STAGES": 1}, problem)
    assert step.grid == (16,)
    assert sizes.items() <= dict(step.constants).items()


@pytest.mark.parametrize(
    ("m", "dtype", "many"), [(65536, "float16", False), (65537, "float16", True), (2**20, "float32", False)]
)
def test_many_rows_of_16_bit_logits_are_sorted_for_throughput(m, dtype, many):
    dims = {"M": m, "E": 64, "TOPK": 8}
    (step,) = registry.load("topk_gating").plan(sorting(dims, dtype)[0], Problem("topk_gating", dims, dtype))
    assert step.constants["MANY"] is many


@pytest.mark.needs_gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    "dims",
    [
        {"M": 1000, "E": 100, "TOPK": 5},
        {"M": 333, "E": 300, "TOPK": 16},
        {"M": 70000, "E": 64, "TOPK": 8},  # aims at throughput
        {"M": 70000, "E": 200, "TOPK": 6},
        {"M": 40, "E": 65536, "TOPK": 4},
    ],
)
@pytest.mark.parametrize("renormalise", [True, False])
def test_a_row_per_thread_agrees_with_the_reference_on_a_gpu(dtype, dims, renormalise):
    from tilewise.tuner.devices.registry import open_device

    spec, problem = registry.load("topk_gating"), Problem("topk_gating", dims, dtype, {"renormalise": renormalise})
    with open_device("cuda") as device:
        configs = [c for c in enumerate_space(spec, problem, device.target).configs if c["VARIANT"] == "sorted"]
        for config in configs[::6]:
            assert device.verify(spec, problem, config).agreed, config
