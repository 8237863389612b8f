"""Softmax and log-softmax: spaces, values at any shape and for NaN and infinity, and the code compiled for Ascend."""

import importlib.util
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.space.search_space import check_config, enumerate_space

KERNELS = ("softmax", "log_softmax")

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")), reason="needs torch and triton"
)


def problem(name, m, n, dtype="float32"):
    return Problem(name, {"M": m, "N": n}, dtype)


def tiles(variant, block, rows, cols):
    return {
        "VARIANT": variant,
        "BLOCK_SIZE_M": block,
        "ROWS_PER_BLOCK": rows,
        "BLOCK_SIZE_N": cols,
        "multibuffer": True,
    }


# Spaces ----------------------------------------------------------------------------------------------------------

LARGEST = 2**37
"""The most elements of a tensor: 512 GiB of float32."""
ANY_SIZE = st.one_of(st.integers(1, 300), st.integers(1, 2**31 - 1), st.sampled_from([2**20, 1000, 8192, 65536 * 40]))


@settings(max_examples=30)
@given(st.data())
@pytest.mark.parametrize("name", KERNELS)
def test_the_default_is_in_the_space_whatever_the_shape(target, name, data):
    spec = registry.load(name)
    n, dtype = data.draw(ANY_SIZE, "N"), data.draw(st.sampled_from(spec.dtypes), "dtype")
    anything = problem(name, min(data.draw(ANY_SIZE, "M"), LARGEST // n), n, dtype)
    assert check_config(spec, anything, target, spec.default(anything, target)) == ""


@settings(max_examples=4)
@given(st.data())
@pytest.mark.parametrize("name", KERNELS)
def test_the_tiling_has_as_many_programs_as_the_launch(target, name, data):
    spec, n = registry.load(name), data.draw(ANY_SIZE, "N")
    anything = problem(name, min(data.draw(ANY_SIZE, "M"), LARGEST // n), n)
    space = enumerate_space(spec, anything, target)
    assert len(space) <= 3000
    for config in space.configs[:: len(space) // 50 + 1]:
        (launch,) = spec.plan(config, anything)
        assert math.prod(launch.grid) == spec.tiling(config, anything).programs


@pytest.mark.parametrize("name", KERNELS)
def test_both_variants_are_tried_where_a_row_fits_and_one_where_it_does_not(target, name):
    spec = registry.load(name)
    for n, wanted in ((1000, {"one_load", "online"}), (100, {"one_load"}), (2**20 + 1, {"online"})):
        space = enumerate_space(spec, problem(name, 512, n), target)
        assert {config["VARIANT"] for config in space.configs} == wanted


# Values ----------------------------------------------------------------------------------------------------------

ROWS = st.one_of(st.sampled_from([1, 2, 7, 8, 9, 31]), st.integers(1, 40))
COLUMNS = st.one_of(st.sampled_from([1, 2, 31, 32, 33, 511, 512, 513, 1009, 1024, 1025, 2100]), st.integers(1, 1100))
TRIPS = 60
"""The limit on trips of the inner loop over all programs: 0.1 s of interpreting."""


@pytest.mark.in_part(2)
@needs_torch
@settings(max_examples=5)
@given(st.data())
@pytest.mark.parametrize("name", KERNELS)
def test_any_config_of_the_space_is_right_at_any_shape(interpreter, target, name, data):
    spec = registry.load(name)
    m, n, dtype = data.draw(ROWS, "M"), data.draw(COLUMNS, "N"), data.draw(st.sampled_from(spec.dtypes), "dtype")
    anything = problem(name, m, n, dtype)
    configs = enumerate_space(spec, anything, target).configs
    config = configs[data.draw(st.integers(0, len(configs) - 1), "config")]
    tiling = spec.tiling(config, anything)
    assume(tiling.programs * tiling.trips <= TRIPS)
    verdict = interpreter.verify(spec, anything, config)
    assert verdict.agreed, f"{anything} {config}: {verdict.reason}"
    assert verdict.error <= verdict.tolerance


@needs_torch
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("m", "n"), [(1, 65), (3, 64), (11, 129), (13, 200)])
def test_tails_of_rows_columns_and_programs_are_right(interpreter, name, m, n):
    for config in (tiles("online", 5, 4, 64), tiles("online", 4, 4, 50), tiles("one_load", 5, 3, 256)):
        verdict = interpreter.verify(registry.load(name), problem(name, m, n), config)
        assert verdict.agreed, f"{config}: {verdict.reason}"


SPECIAL = """
import json
import torch
from tilewise.benchmarks.model import interpreter_fixes
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.measure.launch import launch

interpreter_fixes.install()
inf, nan, most = float("inf"), float("nan"), torch.finfo(torch.float32).max
x = torch.randn(12, 200, generator=torch.Generator().manual_seed(1))
x[0, 3], x[1, 199], x[2, 0], x[3, :] = nan, inf, -inf, -inf  # row 3: only -inf
x[4, :130], x[5, :199], x[6, 70:] = -inf, -inf, -inf  # blocks of -inf before and after finite numbers
x[7, :], x[8, 100], x[9, :] = -most, most, torch.linspace(-1e4, 1e4, 200)
x[10, 0], x[10, 150], x[11, :] = inf, -inf, 1e30
found = []
for name, configs in CONFIGS.items():
    spec, problem = registry.load(name), Problem(name, {"M": 12, "N": 200}, "float32")
    wanted = spec.reference({"x_ptr": x.double()})["out_ptr"].float()
    for config in configs:
        tensors = {"x_ptr": x, "out_ptr": torch.full((12, 200), 123.0)}
        launch(spec, problem, config, tensors)
        found.append([name, tensors["out_ptr"].tolist(), wanted.tolist()])
print(json.dumps(found))
"""

FAR = """
import torch
from triton.runtime import interpreter
from tilewise.benchmarks.model import interpreter_fixes
from tilewise.kernels.jit.softmax import softmax_one_load_kernel, softmax_online_kernel

interpreter_fixes.install()
rows, columns = 2**25 + 1, 64  # the last row starts at element 2^31; untouched pages cost no memory
x, out = (torch.empty(rows * columns, dtype=torch.float16) for _ in range(2))
x[-columns:] = 0.5
before = interpreter.InterpreterBuilder.create_get_program_id
def last(self, axis):
    handle = before(self, axis)
    handle.data[:] = rows - 1
    return handle
interpreter.InterpreterBuilder.create_get_program_id = last
found = []
for kernel, fits, columns_a_block in ((softmax_one_load_kernel, "FITS_N", 64), (softmax_online_kernel, "EVEN_N", 32)):
    out[-columns:] = 0
    kernel[(1,)](x, out, rows, columns, LOG=False, FITS_M=True, BLOCK_SIZE_M=1, ROWS_PER_BLOCK=1,
                 BLOCK_SIZE_N=columns_a_block, **{fits: True})
    found.append(out[-columns:].unique().tolist())
print(found)
"""


@needs_torch
def test_nan_and_infinity_are_treated_as_by_torch(interpreted):
    configs = [tiles("one_load", 12, 5, 200), tiles("one_load", 7, 1, 256), tiles("online", 12, 5, 64)]
    found = interpreted(SPECIAL.replace("CONFIGS", repr(dict.fromkeys(KERNELS, configs))))
    assert len(found) == len(KERNELS) * len(configs)
    for name, got, wanted in found:
        assert [row for row in range(12) if math.isnan(wanted[row][20])] == [0, 1, 3, 10]
        for row in range(12):
            assert got[row] == pytest.approx(wanted[row], rel=1e-5, abs=1e-7, nan_ok=True), f"{name}, row {row}"


@needs_torch
def test_an_element_beyond_2_to_the_31_is_found(interpreted):
    assert interpreted(FAR) == [[1 / 64], [1 / 64]]


# Compiled for Ascend ---------------------------------------------------------------------------------------------

COMPILED = [
    tiles("one_load", 100, 4, 1000),
    tiles("one_load", 25, 1, 4001),
    tiles("online", 100, 4, 1024),
]


@pytest.fixture(scope="module")
def compile_folder(tmp_path_factory):
    from tilewise.tuner.devices.ascend_model import toolchain

    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    return tmp_path_factory.mktemp("compiled")


def modelled(spec, problem, config, ascend, folder):
    from tilewise.tuner.devices.ascend_model.model_config import model_config

    outcome, machines = model_config(spec, problem, config, ascend, folder)
    assert machines is not None, outcome.reason
    return outcome.facts, machines.time("value")


@pytest.mark.in_part(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("config", COMPILED, ids=["rows", "one row", "online"])
def test_compiled_for_ascend_it_streams(compile_folder, ascend, name, dtype, config):
    """The code is double-buffered, needs on-chip memory as estimated, and moves the least bytes (one_load) or 1.5
    times as many (online)."""
    online = config["VARIANT"] == "online"
    spec, shape = registry.load(name), problem(name, 1000, 8192 if online else config["BLOCK_SIZE_N"], dtype)
    facts, timed = modelled(spec, shape, config, ascend, compile_folder)
    assert facts["effective_options"]["multibuffer"]
    assert facts["double_buffered"]
    tiling = spec.tiling(config, shape)
    estimated = 2 * tiling.streamed_bytes + tiling.resident_bytes
    assert facts["on_chip_bits"]["required"] / 8 == pytest.approx(estimated, rel=0.1)
    least = 1.5 if online else 1.0
    assert least <= (timed.bytes_in + timed.bytes_out) / spec.bytes(shape) <= 1.05 * least


def test_one_load_beats_online_where_a_row_fits(compile_folder, ascend):
    """The factor of ten in the seed documents is for a loop that loads a row three times; this one loads it twice."""
    spec, shape = registry.load("log_softmax"), problem("log_softmax", 1000, 2048)
    _, whole = modelled(spec, shape, tiles("one_load", 25, 4, 2048), ascend, compile_folder)
    _, looped = modelled(spec, shape, tiles("online", 25, 4, 1024), ascend, compile_folder)
    assert looped.time_us > 1.3 * whole.time_us
