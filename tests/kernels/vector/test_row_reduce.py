"""The headline kernel's spec: space, default and tiling."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem, Target
from tilewise.tuner.space.search_space import enumerate_space

SPEC = registry.load("row_reduce")
DTYPES = st.sampled_from(SPEC.dtypes)
SIZES = st.one_of(st.integers(1, 300), st.integers(1, 2**31 - 1), st.sampled_from([2**20, 1000, 8192, 65535 * 32 + 1]))
PUBLISHED = [
    (50, 25, 256),
    (25, 4, 2048),
    (25, 25, 256),
    (20, 20, 256),
]  # the seed documents' four, measured on a real part


def problem(m, n, dtype="float32"):
    return Problem("row_reduce", {"M": m, "N": n}, dtype)


HEADLINE = problem(1000, 8192)


def tiles(config):
    return tuple(config[name] for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"))


def test_the_headline_space_on_ascend_holds_the_published_configs_among_many(ascend):
    space = enumerate_space(SPEC, HEADLINE, ascend)
    assert len(space) >= 800
    held = {(*tiles(config), config["multibuffer"]) for config in space.configs}
    assert len(held) == len(space)
    assert {(*published, True) for published in PUBLISHED} <= held


def test_the_headline_default_is_no_published_config(ascend):
    assert tiles(SPEC.default(HEADLINE, ascend)) not in PUBLISHED


@settings(max_examples=25)
@given(SIZES, SIZES, DTYPES)
def test_the_default_is_in_the_space_whatever_the_shape(target, m, n, dtype):
    anything = problem(m, n, dtype)
    default = SPEC.default(anything, target)
    assert enumerate_space(SPEC, anything, target).index(default) is not None


@settings(max_examples=25)
@given(SIZES, SIZES, DTYPES)
def test_an_nvidia_space_holds_powers_of_two_only(nvidia, m, n, dtype):
    space = enumerate_space(SPEC, problem(m, n, dtype), nvidia)
    names = ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N", "num_warps")
    values = {value for name in names for value in space.domains[name]}
    assert all(value.bit_count() == 1 for value in values)
    assert "multibuffer" not in space.domains


@settings(max_examples=25)
@given(st.data())
def test_a_config_of_the_space_launches_and_fits(target, data):
    m, n, dtype = data.draw(SIZES), data.draw(SIZES), data.draw(DTYPES)
    anything = problem(m, n, dtype)
    space = enumerate_space(SPEC, anything, target)
    config = space.configs[data.draw(st.integers(0, len(space) - 1))]
    [launch] = SPEC.plan(config, anything)
    tiling = SPEC.tiling(config, anything)
    assert math.prod(launch.grid) == tiling.programs <= target.max_programs
    assert tiling.programs * config["BLOCK_SIZE_M"] >= m > (tiling.programs - 1) * config["BLOCK_SIZE_M"]
    assert config["SUB_BLOCK_SIZE_M"] <= config["BLOCK_SIZE_M"]
    if target.family == "ascend":
        assert 2 * 4 * config["SUB_BLOCK_SIZE_M"] * config["BLOCK_SIZE_N"] <= target.on_chip_bytes
    else:
        threads = 32 * config["num_warps"]
        assert threads <= config["SUB_BLOCK_SIZE_M"] * config["BLOCK_SIZE_N"] <= 128 * threads


def test_traffic_and_arithmetic_are_those_of_the_operator():
    assert SPEC.bytes(HEADLINE) == 4 * (1000 * 8192 + 8192 + 1000)
    assert SPEC.bytes(problem(1000, 8192, "bfloat16")) == 2 * (1000 * 8192 + 8192 + 1000)
    assert SPEC.flops(HEADLINE) == 2 * SPEC.flops(problem(500, 8192)) > 1000 * 8192


@pytest.mark.parametrize("dtype", SPEC.dtypes)
def test_buffers_are_those_of_the_function(dtype):
    buffers = SPEC.buffers(problem(3, 5, dtype))
    assert {name: (b.shape, b.dtype, b.role) for name, b in buffers.items()} == {
        "x_ptr": ((3, 5), dtype, "in"),
        "w_ptr": ((5,), dtype, "in"),
        "out_ptr": ((3,), dtype, "out"),
    }


def test_the_reference_is_the_operator_written_out():
    torch = pytest.importorskip("torch")
    x = torch.tensor([[0.0, 1.0], [-2.0, 0.5]], dtype=torch.float64)
    w = torch.tensor([0.25, -1.0], dtype=torch.float64)
    written_out = [sum(1 / (1 + math.exp(-(2 * float(x[m, n]) + float(w[n])))) for n in range(2)) for m in range(2)]
    assert SPEC.reference({"x_ptr": x, "w_ptr": w})["out_ptr"].tolist() == pytest.approx(written_out, rel=1e-14)


@pytest.mark.parametrize(
    ("family", "rows", "cols", "warps", "held"),
    [
        ("ascend", 24, 1024, 4, (True, True)),  # two tiles of 96 KiB fill the unified buffer
        ("ascend", 25, 1024, 4, (False, True)),
        ("nvidia", 24, 1024, 4, (True, False)),
        ("nvidia", 16, 1024, 4, (True, True)),  # 128 elements per thread
        ("nvidia", 17, 1024, 4, (True, False)),
        ("nvidia", 1, 128, 4, (True, True)),  # one element per thread
        ("nvidia", 1, 127, 4, (True, False)),
        ("nvidia", 1, 127, 2, (True, True)),
    ],
)
def test_tiles_that_fill_the_chip_or_a_threads_registers_are_the_largest(family, rows, cols, warps, held):
    spec = registry.load("row_reduce")
    target = Target(family, "a part", 40, 196608, 32, 65535)
    config = {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": cols, "num_warps": warps}
    problem = Problem("row_reduce", {"M": 100, "N": 8192}, "float32")
    assert tuple(rule.holds(config, problem, target) for rule in spec.constraints[1:]) == held
