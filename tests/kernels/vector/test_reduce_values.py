"""Values of the reductions in Triton's interpreter: any shape and config, each element, NaN and infinity."""

import importlib.util
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.space.search_space import enumerate_space

if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch

NAMES = ["max_all", "max_rows", "prod_all", "prod_rows", "sum_all", "sum_rows"]
ROWS = st.one_of(st.sampled_from([1, 2, 3, 8, 31, 97]), st.integers(1, 60))
COLUMNS = st.one_of(st.sampled_from([1, 2, 7, 8, 63, 64, 65, 257, 521, 4095, 4097]), st.integers(1, 9000))


@settings(max_examples=8)
@given(st.data())
def test_any_config_of_the_space_is_right_at_any_shape(interpreter, target, data):
    spec = registry.load(data.draw(st.sampled_from(NAMES), "kernel"))
    dims = {name: data.draw(ROWS if name == "M" else COLUMNS, name) for name in spec.dims}
    problem = Problem(spec.name, dims, data.draw(st.sampled_from(spec.dtypes), "dtype"))
    configs = enumerate_space(spec, problem, target).configs
    config = configs[data.draw(st.integers(0, len(configs) - 1), "config")]
    tiling = spec.tiling(config, problem)
    assume(tiling.programs * tiling.trips <= 60)
    verdict = interpreter.verify(spec, problem, config)
    assert verdict.agreed, f"{problem} {config}: {verdict.reason}"


SCRIPT = """
import json, sys
import torch
from tilewise.benchmarks.model import interpreter_fixes
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.measure.launch import launch
from tilewise.tuner.measure.verify import Arguments

interpreter_fixes.install()
NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": float("-inf")}
# No tail; tails of parts, tiles and rows; one tile per part; several tiles per part.
ROWS = {"direct": [(40, 12, 128, 128), (35, 35, 96, 16)],
        "parts": [(40, 12, 32, 16), (35, 35, 40, 24), (70, 70, 16, 16)]}

def variants(name):
    return ["direct", "two_stage"] + ([] if name.startswith("prod") else ["atomic"])

def run(name, x, variant, tiles, runs=1, reset=True):
    spec = registry.load(name)
    names = ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N", "SUB_BLOCK_SIZE_N")
    config = {"VARIANT": variant, **dict(zip(names, tiles))}
    if name.endswith("_all"):
        del config["BLOCK_SIZE_M"], config["SUB_BLOCK_SIZE_M"]
    problem = Problem(name, dict(zip(spec.dims, x.shape)), "float32")
    arguments = Arguments(spec, problem)
    tensors = arguments.bind(config)
    arguments.poison()
    tensors["x_ptr"].copy_(x)
    for _ in range(runs):
        if reset:
            arguments.reset()
        launch(spec, problem, config, tensors)
    return tensors["out_ptr"].tolist()
"""

EACH_ELEMENT = (
    SCRIPT
    + """
found = []
special = torch.tensor([3.0, float("nan"), float("inf")] * 24)[:70]
for name in ("sum_rows", "prod_rows", "max_rows"):
    for variant in variants(name):
        for tiles in ROWS["direct" if variant == "direct" else "parts"]:
            x = torch.full((70, 70), NEUTRAL[name[:-5]])
            x.diagonal().copy_(special)
            found.append([name, variant, tiles, run(name, x, variant, tiles)])
print(json.dumps(found))
"""
)

STRANGE = (
    SCRIPT
    + """
inf, nan = float("inf"), float("nan")
x = torch.randn(7, 70, generator=torch.Generator().manual_seed(1))
x[0, 3], x[1, 69], x[2, 0], x[3, 5], x[3, 6], x[4, :], x[5, :] = inf, -inf, nan, inf, -inf, -inf, -x[5].abs()
found = []
for name in ("sum_rows", "prod_rows", "max_rows"):
    wanted = registry.load(name).reference({"x_ptr": x.double()})["out_ptr"].tolist()
    for variant in variants(name):
        for tiles in ROWS["direct" if variant == "direct" else "parts"]:
            found.append([name, variant, run(name, x, variant, tiles), wanted])
print(json.dumps(found))
"""
)

TRAP = (
    SCRIPT
    + """
x = -torch.rand(70, generator=torch.Generator().manual_seed(1)) - 1
smaller = 2 * x
tiles = (1, 1, 16, 16)
print(json.dumps({
    "sum": [run("sum_all", x, "atomic", tiles, runs=3, reset=reset) for reset in (True, False)],
    "two_stage": [run("sum_all", x, "two_stage", tiles, runs=3, reset=reset) for reset in (True, False)],
    "max": run("max_all", x, "atomic", tiles, runs=3),
    "wanted": [float(x.sum()), float(x.max())],
}))
"""
)


def test_each_element_counts_once_wherever_it_stands(interpreted):
    """Row m holds the neutral element, and in column m a number, NaN or infinity."""
    found = interpreted(EACH_ELEMENT)
    assert len(found) == (2 + 3 + 3) + (2 + 3) + (2 + 3 + 3)
    for name, variant, tiles, out in found:
        assert out == pytest.approx(([3, math.nan, math.inf] * 24)[:70], nan_ok=True), (name, variant, tiles)


def test_nan_and_infinity_propagate_as_in_torch(interpreted):
    for name, variant, got, wanted in interpreted(STRANGE):
        assert got == pytest.approx(wanted, rel=1e-5, nan_ok=True), (name, variant)
        assert math.isnan(wanted[2])


def test_accumulating_without_a_reset_gives_wrong_sums_and_with_it_right_ones(interpreted):
    found = interpreted(TRAP)
    total, largest = found["wanted"]
    with_reset, without = found["sum"]
    assert with_reset == pytest.approx([total], rel=1e-5)
    assert without[0] != pytest.approx(total, rel=0.5)
    assert found["two_stage"] == [pytest.approx([total], rel=1e-5)] * 2  # two stages need no reset
    assert found["max"] == [largest]  # negative, since a missing reset would hide a maximum of zero or more


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("size", [70, 50_000])
def test_products_of_drawn_data_neither_overflow_nor_round(dtype, size):
    spec = registry.load("prod_rows")
    x = torch.empty(5, size, dtype=getattr(torch, dtype))
    spec.buffers(Problem("prod_rows", {"M": 5, "N": size}, dtype))["x_ptr"].draw(x, torch.Generator().manual_seed(1))
    exact = x.double().cumprod(1).abs()
    assert 0.5 <= exact.min() <= exact.max() <= 2
    order = torch.randperm(size, generator=torch.Generator().manual_seed(2))
    assert x.double()[:, order].cumprod(1).abs().log2().abs().max() < 60  # products of any selection
    assert x.unique().tolist() == [-2, -1, -0.5, 0.5, 1, 2]


def test_drawn_data_shows_a_lost_last_column():
    for name in ("sum_rows", "prod_rows", "max_rows"):
        spec = registry.load(name)
        x = torch.empty(12, 70)
        buffer = spec.buffers(Problem(name, {"M": 12, "N": 70}, "float32"))["x_ptr"]
        generator = torch.Generator().manual_seed(1)
        buffer.draw(x, generator) if buffer.draw else x.normal_(generator=generator)
        whole, cut = (spec.reference({"x_ptr": part})["out_ptr"] for part in (x, x[:, :-1]))
        assert not torch.allclose(whole, cut, rtol=0.01, equal_nan=True), name
