"""The reductions compiled for Ascend: on-chip memory, double buffering and code."""

import importlib.util

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)
if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)

from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.prior.penalties import is_likely_to_fit, penalties

PART = "Ascend910B4"
ROWS, EVERYTHING = {"M": 1000, "N": 8192}, {"N": 2**22}


def tiles(m, sub_m, n, sub_n):
    return {"BLOCK_SIZE_M": m, "SUB_BLOCK_SIZE_M": sub_m, "BLOCK_SIZE_N": n, "SUB_BLOCK_SIZE_N": sub_n}


def columns(n, sub_n):
    return {"BLOCK_SIZE_N": n, "SUB_BLOCK_SIZE_N": sub_n}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def part(folder):
    return toolchain.target(PART, folder)


def compiled(folder, name, dims, config, dtype="float32"):
    """Return the first launch's scheduled code."""
    spec, problem = registry.load(name), Problem(name, dims, dtype)
    linalg = toolchain.lower(spec, problem, config, spec.plan(config, problem)[0], PART)
    return toolchain.compile_linalg(linalg, PART, {}, cache_folder=folder).code


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("name", "dims", "config", "dtype"),
    [
        ("sum_rows", ROWS, {"VARIANT": "direct", **tiles(25, 25, 8192, 512)}, "float32"),
        ("max_rows", ROWS, {"VARIANT": "direct", **tiles(25, 5, 8192, 2048)}, "float16"),
        ("prod_rows", ROWS, {"VARIANT": "direct", **tiles(25, 2, 8192, 4096)}, "bfloat16"),
        ("max_rows", {"M": 256, "N": 65536}, {"VARIANT": "atomic", **tiles(16, 8, 16384, 1024)}, "float32"),
        ("sum_rows", {"M": 256, "N": 65536}, {"VARIANT": "two_stage", **tiles(16, 8, 16384, 1024)}, "float32"),
        ("sum_rows", {"M": 70000, "N": 5}, {"VARIANT": "direct", **tiles(875, 512, 5, 8)}, "float32"),
        ("sum_all", EVERYTHING, {"VARIANT": "atomic", **columns(104896, 8192)}, "float32"),
        ("max_all", EVERYTHING, {"VARIANT": "two_stage", **columns(16384, 16384)}, "float32"),
        ("prod_all", EVERYTHING, {"VARIANT": "two_stage", **columns(104896, 8192)}, "float16"),
        ("prod_all", {"N": 1}, {"VARIANT": "direct", **columns(1, 8)}, "float32"),
    ],
)
def test_a_config_compiles_and_moves_little_more_than_it_must(folder, part, name, dims, config, dtype):
    spec, problem = registry.load(name), Problem(name, dims, dtype)
    config = config | {"multibuffer": True}
    outcome, machines = model_config(spec, problem, config, part, folder)
    assert outcome.status.value == "correct", outcome.reason
    assert is_likely_to_fit(penalties(spec, problem, config, part))
    timed = machines.time("value")
    assert timed.bytes_in + timed.bytes_out <= 1.1 * spec.bytes(problem) + 1024  # a few bytes move as whole blocks


@pytest.mark.in_part(2)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["sum_rows", "prod_rows", "max_rows"])
@pytest.mark.parametrize("trips", [1, 2])
def test_the_estimate_of_on_chip_memory_holds_where_memory_is_tight(folder, part, name, dtype, trips):
    """A float32 tile of five rows of 4096 columns is two fifths of the unified buffer."""
    spec, problem = registry.load(name), Problem(name, {"M": 1000, "N": 4096 * trips}, dtype)
    config = {"VARIANT": "direct", **tiles(25, 5, 4096 * trips, 4096), "multibuffer": True}
    tiling = spec.tiling(config, problem)
    single = tiling.streamed_bytes + tiling.resident_bytes
    outcome, _ = model_config(spec, problem, config, part, folder)
    assert (outcome.status.value == "correct") == (single <= part.on_chip_bytes), outcome.reason
    if outcome.status.value == "correct":
        fits_twice = single + tiling.streamed_bytes <= part.on_chip_bytes
        assert outcome.facts["double_buffered"] == fits_twice
        required = outcome.facts["on_chip_bits"]["required"] // 8
        assert required == pytest.approx(single + fits_twice * tiling.streamed_bytes, rel=0.15)


def test_a_maximum_with_nan_is_one_instruction(folder):
    code = compiled(folder, "max_rows", ROWS, {"VARIANT": "direct", **tiles(25, 25, 8192, 512), "multibuffer": True})
    assert "hivm.hir.vmax" in code
    assert not any(f"hivm.hir.{name}" in code for name in ("vsel", "vcmp", "vnot"))


@pytest.mark.parametrize("name", ["sum_all", "max_all"])
def test_an_atomic_is_one_store_and_no_detour_through_a_register(folder, name):
    config = {"VARIANT": "atomic", **columns(104896, 8192), "multibuffer": True}
    code = compiled(folder, name, EVERYTHING, config)
    assert code.count("atomic_kind = ") == 1
    assert "memref.load" not in code
