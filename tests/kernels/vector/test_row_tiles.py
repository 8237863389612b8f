"""The kernels of a language model's layers: spaces, and values of any config at any shape in Triton's interpreter."""

import importlib.util
import math

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.space.search_space import check_config, enumerate_space

LOOPED = ("add_rms_norm", "cross_entropy", "per_token_quant", "rms_norm")
KERNELS = (*LOOPED, "per_block_quant", "rotary", "silu_and_mul", "topk_gating")

LARGEST = 2**35
"""The most elements of a tensor."""
ANY_ROWS = st.one_of(st.integers(1, 300), st.integers(1, 2**31 - 1), st.sampled_from([2**20, 1000, 8192, 65536 * 40]))
ANY_COLUMNS = st.one_of(st.integers(1, 300), st.integers(1, 2**22), st.sampled_from([1000, 8192, 128256]))
ANY = {"M": ANY_ROWS, "N": ANY_COLUMNS, "H": st.integers(1, 300), "HALF": st.integers(1, 3000)}
ANY |= {"E": st.integers(8, 1000), "TOPK": st.integers(1, 8)}
SMALL = {
    "M": st.one_of(st.sampled_from([1, 2, 7, 8, 9, 31]), st.integers(1, 40)),
    "N": st.one_of(st.sampled_from([1, 2, 33, 127, 129, 511, 513, 1025, 2100]), st.integers(1, 1100)),
    "H": st.integers(1, 9),
    "HALF": st.one_of(st.sampled_from([1, 32, 33, 64, 1025]), st.integers(1, 70)),
    "E": st.one_of(st.sampled_from([8, 16, 64]), st.integers(8, 70)),
    "TOPK": st.integers(1, 8),
}
TRIPS = 60
"""The limit on trips of the inner loop over all programs: 0.1 s of interpreting."""

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")), reason="needs torch and triton"
)


def any_problem(spec, data):
    sizes = {name: data.draw(ANY[name], name) for name in spec.dims}
    columns = math.prod(size for name, size in sizes.items() if name not in ("M", "TOPK"))
    sizes["M"] = min(sizes["M"], LARGEST // columns)
    return Problem(spec.name, sizes, data.draw(st.sampled_from(spec.dtypes)))


@settings(max_examples=20, phases=[Phase.generate])
@given(st.data())
@pytest.mark.parametrize("name", KERNELS)
def test_the_default_is_in_the_space_whatever_the_shape(target, name, data):
    spec = registry.load(name)
    problem = any_problem(spec, data)
    assert check_config(spec, problem, target, spec.default(problem, target)) == ""


@settings(max_examples=3, phases=[Phase.generate])
@given(st.data())
@pytest.mark.parametrize("name", KERNELS)
def test_the_tiling_has_as_many_programs_as_the_launch(target, name, data):
    spec = registry.load(name)
    problem = any_problem(spec, data)
    space = enumerate_space(spec, problem, target)
    assert len(space) <= 4000
    for config in space.configs[:: len(space) // 50 + 1]:
        (launch,) = spec.plan(config, problem)
        assert math.prod(launch.grid) == spec.tiling(config, problem).programs


@pytest.mark.parametrize("name", LOOPED)
def test_both_variants_are_tried_where_a_row_fits_and_one_where_it_does_not(target, name):
    spec = registry.load(name)
    for n, wanted in ((1000, {"one_load", "looped"}), (100, {"one_load"}), (2**20 + 1, {"looped"})):
        space = enumerate_space(spec, Problem(name, {"M": 512, "N": n}, "float32"), target)
        assert {config["VARIANT"] for config in space.configs} == wanted


@pytest.mark.in_part(2)
@needs_torch
@settings(max_examples=6, phases=[Phase.generate])
@given(st.data())
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", KERNELS)
def test_any_config_of_the_space_is_right_at_any_shape(interpreter, target, name, dtype, data):
    spec = registry.load(name)
    problem = Problem(name, {dim: data.draw(SMALL[dim], dim) for dim in spec.dims}, dtype)
    configs = enumerate_space(spec, problem, target).configs
    config = configs[data.draw(st.integers(0, len(configs) - 1), "config")]
    tiling = spec.tiling(config, problem)
    assume(tiling.programs * tiling.trips <= TRIPS)
    verdict = interpreter.verify(spec, problem, config)
    assert verdict.agreed, f"{problem} {config}: {verdict.reason}"
    assert verdict.error <= verdict.tolerance


@pytest.mark.in_part(5)
@needs_torch
@pytest.mark.parametrize("name", [*KERNELS, "softmax", "log_softmax"])
def test_a_step_taller_than_the_rows_is_right(interpreter, nvidia, name):
    """No space offers one, but a config of a larger shape may be launched on a smaller one."""
    sizes = {"M": 3, "N": 5, "H": 3, "HALF": 5, "E": 9, "TOPK": 2}
    spec = registry.load(name)
    problem = Problem(name, {dim: sizes[dim] for dim in spec.dims}, "float32")
    for config in enumerate_space(spec, problem, nvidia).configs:
        taller = dict.fromkeys({"BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "ROWS_PER_BLOCK"} & config.keys(), 4)
        verdict = interpreter.verify(spec, problem, {**config, **taller})
        assert verdict.agreed, verdict.reason
