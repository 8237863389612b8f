"""The processor time of compiling and timing a config is measured for configs that get a time."""

import pytest

from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)

from tilewise.benchmarks.model.clock_speed import PROBLEMS, bench_clock


def test_each_problem_has_a_median_of_as_many_configs_as_were_asked_for():
    small = Problem("row_reduce", {"M": 64, "N": 256}, "float32")
    body = bench_clock("Ascend910B4", count=2, seed=0, problems=[small])
    (row,) = body["rows"]
    assert (row["problem"], row["configs"]) == (str(small), 2)
    assert 0 < row["median_s"] <= row["most_s"]
    assert body["command"] == "tilewise bench clock --count 2 --seed 0"


def test_the_kernels_with_an_aim_are_measured():
    assert {"gemm", "flash_attention"} <= {problem.kernel for problem in PROBLEMS}
