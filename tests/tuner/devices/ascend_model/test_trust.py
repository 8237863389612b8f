"""Each time of a cube kernel comes with the class of kernel that says how far it is to be trusted."""

from types import SimpleNamespace

import pytest
from places import ROOT

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.devices.ascend_model.model_config import _class, model_config
from tilewise.tuner.hardware.cube_costs import TRUST
from tilewise.tuner.tuning.evidence import explanation

TUTORIAL = f"{ROOT / 'examples' / 'tutorial_matmul.py'}:MATMUL"
TILE = {"VARIANT": "masked", "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP_M": 1, "SPLIT_K": 1, "PROGRAMS": 0}
WRAPPED = {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}


@pytest.mark.parametrize(
    ("kernel", "size", "config", "flags", "expected"),
    [
        ("gemm", 2048, TILE, {}, "large product"),
        ("gemm", 1024, TILE, {}, "small product"),
        ("gemm", 128, TILE, {}, "launch-bound"),
        ("gemm", 1024, TILE, {"bias": True}, "cube and vector cores"),
        pytest.param(TUTORIAL, 128, WRAPPED, {}, "element-wise", id="tutorial"),
    ],
)
def test_the_class_follows_from_what_the_time_is_made_of(kernel, size, config, flags, expected, target, cache_folder):
    spec = registry.load(kernel)
    problem = Problem(spec.name, dict.fromkeys("MNK", size), "float16", flags)
    outcome, _ = model_config(spec, problem, config, target, cache_folder)
    low, high = TRUST[expected]
    assert outcome.facts["trust"] == {"class": expected, "low": low, "high": high}
    said = explanation({"programs": 1, "cores": 1, "waves": 1, **outcome.facts}, outcome.timing.time_us)
    assert said.endswith(f"modelled as {expected}: probably {low:g} to {high:g} times as long")


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ({"M": 1024, "N": 1039, "K": 1024}, "odd rows"),
        ({"M": 1024, "N": 1040, "K": 1024}, "small product"),
        ({"M": 256, "N": 256, "K": 65536}, "odd rows"),
        ({"M": 256, "N": 256, "K": 65520}, "large product"),
    ],
)
def test_rows_that_are_no_whole_blocks_or_far_apart_are_a_class(dims, expected, target, cache_folder):
    outcome, _ = model_config(
        registry.load("gemm"), Problem("gemm", dims, "float16"), {**TILE, "BLOCK_K": 64}, target, cache_folder
    )
    assert outcome.facts["trust"]["class"] == expected


def test_lower_trust_is_a_wider_interval(cache_folder):
    with ModelDevice("Ascend910B4", jobs=1, cache_folder=cache_folder) as device:
        spec = registry.load("gemm")
        wide, narrow = (
            device.analyse(spec, Problem("gemm", dict.fromkeys("MNK", size), "float16"), TILE).between_us
            for size in (128, 2048)
        )
    assert wide[1] / wide[0] > narrow[1] / narrow[0]


def test_a_vector_kernel_has_one_interval_for_all(row_reduce, problem, rows, target, cache_folder):
    outcome, _ = model_config(row_reduce, problem(1000, 8192), rows(25, 25, 256), target, cache_folder)
    assert "trust" not in outcome.facts


@pytest.mark.parametrize(
    ("overhead_us", "odd_rows_us", "time_us", "vector", "expected"),
    [
        (30.0, 0.0, 90.0, False, "small product"),  # a third of the time is not more than a third
        (30.1, 40.0, 90.0, True, "launch-bound"),
        (0.0, 27.0, 90.0, True, "odd rows"),
        (0.0, 26.9, 90.0, True, "cube and vector cores"),
        (0.0, 0.0, 99.9, False, "small product"),
        (0.0, 0.0, 100.0, False, "large product"),
    ],
)
def test_each_class_begins_where_its_share_or_time_does(overhead_us, odd_rows_us, time_us, vector, expected):
    function = SimpleNamespace(core="cube", vector=vector or None, walk=lambda: iter(()))
    overhead = {"launch": overhead_us / 2, "start": overhead_us / 2}
    timed = SimpleNamespace(overhead_us=overhead, odd_rows_us=odd_rows_us, time_us=time_us, bound_by="M")
    assert _class([function], timed) == expected
    assert _class([SimpleNamespace(core="vector")], timed) == ""
