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


def test_a_case_left_out_is_timed_at_the_middle_of_the_ranges_of_the_figures_that_it_determined(cache):
    assert model.figures_fitted_on("sum_fused").keys() == {"vexp", "vdiv"}
    assert model.figures_fitted_on("sum_rows_tall").keys() == {"program_start", "transfer_latency"}
    assert model.figures_fitted_on("div_broadcast_rows") == {}
    few, many, other = (
        model._model(case(*row), "Ascend910B4")
        for row in (("min_all_small", 8192), ("min_all_small", 512), ("div_broadcast_rows", 40, 512))
    )
    launch = model.FIGURES["launch_us"]
    assert few["left_out_us"] - few["modelled_us"] > (launch.low + launch.high) / 2 - launch.value - 0.05
    assert other["left_out_us"] == other["modelled_us"]
    [_, row] = model._with_ratios([few, many])
    errors = model._left_out("min_all_small", [few, row])
    assert (errors["figures"], errors["compared"]) == (["atomic_us", "launch_us"], 1)
    assert errors["mean_absolute_ratio_error"] == round(abs(row["left_out_ratio"] / row["published_ratio"] - 1), 4)


def test_the_modelled_ratios_of_two_published_kernels_are_near_the_measured_ones(cache):
    """The model's docs state the errors of every case; here only a change of the model may not make these worse."""
    rows = [model._model(c, "Ascend910B4") for c in CASES if c["id"] in ("sum_fused", "mean_rows")]
    summary = model._errors([row for group in model._groups(rows).values() for row in model._with_ratios(group)])
    assert summary["compared"] == 8
    assert summary["mean_absolute_ratio_error"] < 0.04
    assert abs(summary["largest_ratio_error"]) < 0.13
    assert all(abs(row["modelled_us"] / row["published_us"] - 1) < 0.12 for row in rows)


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
