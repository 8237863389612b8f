"""The element-wise kernels: spaces, values at any shape and for NaN and infinity, and the code compiled for Ascend."""

import importlib.util
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.space.search_space import check_config, enumerate_space

FLAT = ("vector_add", "gelu_tanh", "gelu_rational", "gelu_erf")
TABLES = ("relu_bias_scale", "layer_norm_apply")
KERNELS = (*FLAT, *TABLES)
RATIONAL_ERROR = 0.0022
"""The largest deviation of gelu_rational from gelu_tanh, as in its summary."""

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")), reason="needs torch and triton"
)


def problem(name, *sizes, dtype="float32"):
    """Return the kernel's problem with M rows of N columns, or with N elements."""
    dims = registry.load(name).dims
    return Problem(name, dict(zip(dims, sizes[-len(dims) :], strict=True)), dtype)


def some_config(data, spec, problem, target):
    configs = enumerate_space(spec, problem, target).configs
    return configs[data.draw(st.integers(0, len(configs) - 1), "config")]


# Spaces ----------------------------------------------------------------------------------------------------------

LARGEST = 2**37
"""The most elements of a tensor: 512 GiB of float32."""
LONGEST = 65535 * 8192
"""The longest row that an Ascend part launches: all of its programs, with the widest block of which each dtype fits."""
ANY_SIZE = st.one_of(st.integers(1, 300), st.integers(1, LONGEST), st.sampled_from([2**20, 1000, 8192, 65536 * 40 + 1]))


@settings(max_examples=30)
@given(st.data())
@pytest.mark.parametrize("name", KERNELS)
def test_the_default_is_in_the_space_whatever_the_shape(target, name, data):
    spec = registry.load(name)
    m, n, dtype = data.draw(ANY_SIZE), data.draw(ANY_SIZE), data.draw(st.sampled_from(spec.dtypes))
    anything = problem(name, min(m, LARGEST // n), n, dtype=dtype)
    assert check_config(spec, anything, target, spec.default(anything, target)) == ""


@pytest.mark.parametrize("n", [1000, 10_000_000, 67_000_000, 100_000_000, 2**28, LONGEST])
@pytest.mark.parametrize("name", TABLES)
def test_the_default_of_a_long_row_has_no_more_programs_than_the_device_launches(ascend, name, n):
    spec = registry.load(name)
    config = spec.default(problem(name, 1, n), ascend)
    programs = math.ceil(n / config["BLOCK_SIZE_N"])
    assert programs <= ascend.max_programs
    assert config["BLOCK_SIZE_N"] <= 1024 or programs > ascend.max_programs / 2  # no wider than that needs


@pytest.mark.parametrize("name", TABLES)
def test_a_row_that_needs_more_programs_than_a_launch_has_is_refused(ascend, name):
    with pytest.raises(NothingFeasible, match="no more programs than the device launches at once"):
        enumerate_space(registry.load(name), problem(name, 1, LONGEST + 1), ascend)


@settings(max_examples=4)
@given(st.data())
@pytest.mark.parametrize("name", ["gelu_tanh", "layer_norm_apply"])
def test_the_tiling_has_as_many_programs_as_the_launch(target, name, data):
    spec = registry.load(name)
    n = data.draw(ANY_SIZE)
    anything = problem(name, min(data.draw(ANY_SIZE), LARGEST // n), n)
    space = enumerate_space(spec, anything, target)
    assert len(space) <= 6000
    for config in space.configs[:: len(space) // 50 + 1]:
        (launch,) = spec.plan(config, anything)
        assert math.prod(launch.grid) == spec.tiling(config, anything).programs


@pytest.mark.parametrize(("name", "sizes"), [("vector_add", (2**26,)), ("relu_bias_scale", (16384, 8192))])
def test_a_persistent_loop_over_the_cores_is_in_the_space(ascend, name, sizes):
    spec, large = registry.load(name), problem(name, *sizes)
    persistent = [c for c in enumerate_space(spec, large, ascend).configs if c["VARIANT"] == "grid_stride"]
    assert any(spec.tiling(config, large).programs == ascend.cores for config in persistent)


@pytest.mark.parametrize("name", KERNELS)
def test_nvidia_tiles_are_powers_of_two_and_blocks_whole_tiles(nvidia, name):
    spec = registry.load(name)
    sub, block = ("SUB_BLOCK_SIZE", "BLOCK_SIZE") if name in FLAT else ("SUB_BLOCK_SIZE_M", "BLOCK_SIZE_M")
    for config in enumerate_space(spec, problem(name, 1000, 8192), nvidia).configs:
        assert config[sub].bit_count() == 1
        assert config[block] % config[sub] == 0
        assert config.get("BLOCK_SIZE_N", 1).bit_count() == 1


# Values ----------------------------------------------------------------------------------------------------------

SIZES = st.one_of(st.sampled_from([1, 2, 3, 63, 64, 65, 127, 511, 512, 513, 1009, 2048]), st.integers(1, 700))
TRIPS = 60
"""The limit on trips of the inner loop over all programs: 0.1 s of interpreting."""


@pytest.mark.in_part(3)
@needs_torch
@settings(max_examples=8)
@given(st.data())
@pytest.mark.parametrize("name", KERNELS)
def test_any_config_of_the_space_is_right_at_any_shape(interpreter, target, name, data):
    spec = registry.load(name)
    anything = problem(name, data.draw(SIZES), data.draw(SIZES), dtype=data.draw(st.sampled_from(spec.dtypes)))
    config = some_config(data, spec, anything, target)
    tiling = spec.tiling(config, anything)
    assume(tiling.programs * tiling.trips <= TRIPS)
    verdict = interpreter.verify(spec, anything, config)
    assert verdict.agreed, f"{anything} {config}: {verdict.reason}"
    assert verdict.error <= verdict.tolerance


@needs_torch
@pytest.mark.parametrize("variant", ["blocks", "grid_stride"])
@pytest.mark.parametrize(("block", "sub"), [(1000, 300), (512, 512), (2048, 256)])
def test_a_config_of_no_space_is_right_too(interpreter, variant, block, sub):
    """A config from elsewhere meets tails of programs and of the whole, and tensors shorter than a sub-block."""
    config = {"VARIANT": variant, "BLOCK_SIZE": block, "SUB_BLOCK_SIZE": sub, "multibuffer": True}
    for size in (1, 255, 257, 1999, 2048):
        verdict = interpreter.verify(registry.load("vector_add"), problem("vector_add", size), config)
        assert verdict.agreed, f"{size}: {verdict.reason}"


@needs_torch
@pytest.mark.parametrize("variant", ["blocks", "grid_stride"])
@pytest.mark.parametrize("sizes", [(1, 1), (3, 100), (30, 50), (31, 129)])
def test_a_table_smaller_than_its_tiles_is_right_too(interpreter, variant, sizes):
    tiles = {"BLOCK_SIZE_M": 10, "SUB_BLOCK_SIZE_M": 4, "BLOCK_SIZE_N": 100}
    for name in TABLES:
        verdict = interpreter.verify(
            registry.load(name), problem(name, *sizes), {"VARIANT": variant, **tiles, "multibuffer": True}
        )
        assert verdict.agreed, f"{name} {sizes}: {verdict.reason}"


@needs_torch
def test_the_rational_form_is_as_close_to_the_tanh_form_as_it_says():
    import torch

    x = torch.cat([torch.linspace(-12, 12, 200_001, dtype=torch.float64), torch.tensor([-1e30, -5000.0, 5000.0, 1e30])])
    rational, tanh = (registry.load(name).reference({"x_ptr": x})["out_ptr"] for name in ("gelu_rational", "gelu_tanh"))
    worst = float((rational - tanh).abs().max())
    assert RATIONAL_ERROR / 1.1 < worst < RATIONAL_ERROR
    assert f"{RATIONAL_ERROR}" in registry.load("gelu_rational").summary


SPECIAL = """
import json
import torch
from tilewise.benchmarks.model import interpreter_fixes
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.measure.launch import launch

interpreter_fixes.install()
inf, nan = float("inf"), float("nan")
special = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1e-42, -1e-42, 1e30, -1e30, 5000.0, -5000.0, 3e38, -3e38, 4.0, -4.0])
ordinary = torch.randn(7 * 70, generator=torch.Generator().manual_seed(1))
ordinary[: len(special)] = special
found = []
for name in NAMES:
    spec = registry.load(name)
    problem = Problem(name, {"M": 7, "N": 70} if "M" in spec.dims else {"N": 490}, "float32")
    tensors = {}
    for argument, buffer in spec.buffers(problem).items():
        tensors[argument] = torch.rand(buffer.shape, generator=torch.Generator().manual_seed(2)) + 0.5
    tensors["x_ptr"] = ordinary.reshape(tensors["x_ptr"].shape)
    wanted = spec.reference({n: t.double() for n, t in tensors.items() if n != "out_ptr"})["out_ptr"].float()
    for variant in ("blocks", "grid_stride"):
        config = {"VARIANT": variant, "BLOCK_SIZE": 300, "SUB_BLOCK_SIZE": 128, "BLOCK_SIZE_M": 4,
                  "SUB_BLOCK_SIZE_M": 3, "BLOCK_SIZE_N": 32, "multibuffer": True}
        config = {p.name: config[p.name] for p in spec.parameters if p.name in config}
        launch(spec, problem, config, tensors)
        found.append([name, tensors["out_ptr"].flatten().tolist(), wanted.flatten().tolist()])
print(json.dumps(found))
"""

FAR = """
import torch
from triton.runtime import interpreter
from tilewise.benchmarks.model import interpreter_fixes
from tilewise.kernels.jit.elementwise import relu_bias_scale_kernel

interpreter_fixes.install()
rows, columns = 2**25 + 1, 64  # the last row starts at element 2^31; untouched pages cost no memory
x, bias, out = (torch.empty(size, dtype=torch.float16) for size in (rows * columns, columns, rows * columns))
x[-columns:], bias[:] = 0.5, 0.25
before = interpreter.InterpreterBuilder.create_get_program_id
def last(self, axis):
    handle = before(self, axis)
    handle.data[:] = rows - 1
    return handle
interpreter.InterpreterBuilder.create_get_program_id = last
relu_bias_scale_kernel[(1,)](x, bias, out, rows, columns, 2.0, FITS_M=True, FITS_N=True, VARIANT="blocks",
                             BLOCK_SIZE_M=1, SUB_BLOCK_SIZE_M=1, BLOCK_SIZE_N=64)
print(out[-columns:].unique().tolist())
"""


@needs_torch
def test_nan_and_infinity_propagate_as_in_torch(interpreted):
    found = interpreted(SPECIAL.replace("NAMES", repr(KERNELS)))
    assert len(found) == 2 * len(KERNELS)
    for name, got, wanted in found:
        assert math.isnan(got[0]), name  # also for relu: a comparison with zero would give 0
        assert got == pytest.approx(wanted, rel=1e-4, abs=2e-6, nan_ok=True), name


@needs_torch
def test_an_element_beyond_2_to_the_31_is_found(interpreted):
    assert interpreted(FAR) == [1.5]


# Compiled for Ascend ---------------------------------------------------------------------------------------------

SHARE = {"VARIANT": "blocks", "multibuffer": True}
COMPILED = [
    ("vector_add", (4_000_003,), {"BLOCK_SIZE": 100_032, "SUB_BLOCK_SIZE": 4096}),
    ("gelu_tanh", (4_000_003,), {"BLOCK_SIZE": 100_032, "SUB_BLOCK_SIZE": 4096}),
    ("gelu_rational", (4_000_003,), {"BLOCK_SIZE": 100_032, "SUB_BLOCK_SIZE": 4096}),
    ("gelu_erf", (4_000_003,), {"BLOCK_SIZE": 100_032, "SUB_BLOCK_SIZE": 4096}),
    ("relu_bias_scale", (4000, 1001), {"BLOCK_SIZE_M": 100, "SUB_BLOCK_SIZE_M": 5, "BLOCK_SIZE_N": 504}),
    ("layer_norm_apply", (4000, 1001), {"BLOCK_SIZE_M": 100, "SUB_BLOCK_SIZE_M": 5, "BLOCK_SIZE_N": 504}),
]


@pytest.fixture(scope="module")
def compile_folder(tmp_path_factory):
    from tilewise.tuner.devices.ascend_model import toolchain

    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    return tmp_path_factory.mktemp("compiled")


@pytest.mark.in_part(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "sizes", "tiles"), COMPILED, ids=[name for name, *_ in COMPILED])
def test_compiled_for_ascend_it_streams(compile_folder, ascend, name, sizes, tiles, dtype):
    """The code is double-buffered and needs no fill or select despite the tails. On-chip memory is as estimated, and
    at most 1.05 times the least bytes are moved."""
    from tilewise.tuner.devices.ascend_model import toolchain
    from tilewise.tuner.devices.ascend_model.model_config import model_config

    spec, uneven, config = registry.load(name), problem(name, *sizes, dtype=dtype), {**SHARE, **tiles}
    outcome, machines = model_config(spec, uneven, config, ascend, compile_folder)
    assert machines is not None, outcome.reason
    assert outcome.facts["effective_options"]["multibuffer"]
    assert outcome.facts["double_buffered"]
    (launch,) = spec.plan(config, uneven)
    linalg = toolchain.lower(spec, uneven, config, launch, ascend.name)
    code = toolchain.compile_linalg(linalg, ascend.name, {}, cache_folder=compile_folder).code
    assert '"hivm.hir.load"' in code
    assert '"hivm.hir.vsel"' not in code
    assert '"scf.if"' not in code
    tiling = spec.tiling(config, uneven)
    estimated = 2 * tiling.streamed_bytes + tiling.resident_bytes
    assert outcome.facts["on_chip_bits"]["required"] / 8 == pytest.approx(estimated, rel=0.1)
    timed = machines.time("value")
    assert timed.bytes_in + timed.bytes_out <= 1.05 * spec.bytes(uneven)
