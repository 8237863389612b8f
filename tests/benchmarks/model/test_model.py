"""`bench model`: each published timing has a kernel of the described structure; disagreements count separately."""

import importlib.util
import json
from importlib.resources import files
from pathlib import Path

import pytest

from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)
if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)

from tilewise.benchmarks.model import model, published_kernels
from tilewise.benchmarks.model.interpreter import InterpreterVerifier
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.measure.launch import resolve_function

CASES = json.loads(files("tilewise.benchmarks.model").joinpath("published.json").read_text())["cases"]
SMALL = {
    "mean_rows": ({"M": 19, "N": 150}, {"BLOCK_SIZE_M": 8, "SUB_BLOCK_SIZE_M": 3, "BLOCK_SIZE_N": 64}),
    "min_all_small": ({"n": 150}, {"BLOCK_SIZE": 64}),
    "min_all_large": ({"n": 1000}, {"BLOCK_SIZE": 300, "SUB_BLOCK_SIZE": 64}),
    "sum_rows_tall": ({"M": 19, "N": 150}, {"BLOCK_SIZE_M": 8, "BLOCK_SIZE_N": 64}),
    "div_broadcast_rows": ({"M": 101, "N": 16}, {"NUM_BLOCKS": 4, "SUB_M": 8}),
}


@pytest.fixture(scope="module")
def verifier():
    verifier = InterpreterVerifier()
    yield verifier
    verifier.close()


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path))


def case(name, *values):
    return next(c for c in CASES if c["id"] == name and tuple(c["config"].values()) == values)


@pytest.mark.parametrize("name", SMALL)
def test_a_published_kernel_computes_what_it_is_said_to(verifier, name):
    spec = registry.load(f"{Path(published_kernels.__file__)}:{name.upper()}")
    dims, config = SMALL[name]
    dtype = "float16" if name == "div_broadcast_rows" else "float32"
    verdict = verifier.verify(spec, Problem(name, dims, dtype), config)
    assert verdict.agreed, verdict.reason


def test_every_published_config_is_one_of_its_kernels():
    for published in CASES:
        spec = model._load(published["kernel"])
        taken = resolve_function(spec, spec.function).params
        assert {p.name for p in taken if p.is_constexpr and not p.has_default} <= set(published["config"])
        assert set(published["config"]) <= {parameter.name for parameter in spec.parameters}
        assert set(published["dims"]) == set(spec.dims)
        assert published["dtype"] in spec.dtypes


def test_a_timing_comes_with_its_interval(cache):
    row = model._model(case("min_all_large", 131072, 16384), "Ascend910B4")
    assert row["feasible"] and row["double_buffered"]
    assert row["low_us"] < row["modelled_us"] < row["high_us"]


def test_disagreements_on_what_fits_are_counted_and_not_compared(cache):
    """An older compiler accepted one and refused the other."""
    agreed = model._model(case("div_broadcast_rows", 40, 512), "Ascend910B4")
    refused = model._model(case("min_all_large", 65536, 32768), "Ascend910B4")
    taken = model._model(case("div_broadcast_rows", 40, 1024), "Ascend910B4")
    assert not refused["feasible"] and refused["reason"].startswith("UB overflow")
    assert taken["feasible"] and taken["published_failure"] == "on-chip memory overflow"
    rows = [row for group in model._groups([agreed, refused, taken]).values() for row in model._with_ratios(group)]
    summary = model._summary(rows, [])
    assert summary["feasibility_disagreements"] == 2
    assert summary["compared"] == 1
