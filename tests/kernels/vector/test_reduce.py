"""Sums, products and maxima: spaces, defaults and tilings."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.space.search_space import enumerate_space

SPECS = {name: registry.load(name) for name in registry.names() if name.endswith(("_all", "_rows"))}
SIZES = st.one_of(st.integers(1, 300), st.integers(1, 2**31 - 1), st.sampled_from([2**20, 2**20 + 1, 8192, 4097]))


@st.composite
def problems(draw):
    spec = SPECS[draw(st.sampled_from(sorted(SPECS)))]
    return Problem(spec.name, {name: draw(SIZES) for name in spec.dims}, draw(st.sampled_from(spec.dtypes)))


def space_of(name, target, dtype="float32", **dims):
    return enumerate_space(SPECS[name], Problem(name, dims, dtype), target)


def test_each_operator_comes_for_everything_and_for_rows():
    assert sorted(SPECS) == ["max_all", "max_rows", "prod_all", "prod_rows", "sum_all", "sum_rows"]


@settings(max_examples=6)
@given(problems())
def test_the_default_is_in_the_space_whatever_the_shape(target, problem):
    spec = SPECS[problem.kernel]
    assert enumerate_space(spec, problem, target).index(spec.default(problem, target)) is not None


@settings(max_examples=6)
@given(problems(), st.data())
def test_a_config_launches_within_bounds_and_covers_the_problem_once(target, problem, data):
    spec = SPECS[problem.kernel]
    space = enumerate_space(spec, problem, target)
    config = space.configs[data.draw(st.integers(0, len(space) - 1))]
    launches, tiling = spec.plan(config, problem), spec.tiling(config, problem)
    parts = math.ceil(problem.dims["N"] / config["BLOCK_SIZE_N"])
    rows = math.ceil(problem.dims.get("M", 1) / config.get("BLOCK_SIZE_M", 1))
    assert math.prod(launches[0].grid) == tiling.programs == rows * parts <= target.max_programs
    assert launches[0].constants["PARTS"] == parts
    assert (config["VARIANT"] == "direct") == (parts == 1)
    assert len(launches) == (2 if config["VARIANT"] == "two_stage" else 1)
    if config["VARIANT"] == "two_stage":
        combine = launches[1].constants
        assert combine["ROWS"] * launches[1].grid[0] >= problem.dims.get("M", 1)
        assert spec.scratch(config, problem)["partial_ptr"].shape == (problem.dims.get("M", 1), parts)
    else:
        assert not spec.scratch(config, problem)


@settings(max_examples=6)
@given(problems())
def test_an_nvidia_space_holds_powers_of_two_only(nvidia, problem):
    space = enumerate_space(SPECS[problem.kernel], problem, nvidia)
    numbers = [value for values in space.domains.values() for value in values if type(value) is int]
    assert all(value.bit_count() == 1 for value in numbers)
    assert "multibuffer" not in space.domains


@pytest.mark.parametrize(
    ("name", "dtype", "variants"),
    [
        ("sum_rows", "float32", {"direct", "atomic", "two_stage"}),
        ("max_all", "float32", {"direct", "atomic", "two_stage"}),
        ("sum_rows", "float16", {"direct", "two_stage"}),
        ("max_all", "bfloat16", {"direct", "two_stage"}),
        ("prod_all", "float32", {"direct", "two_stage"}),
        ("prod_rows", "float16", {"direct", "two_stage"}),
    ],
)
def test_atomics_are_for_float32_sums_and_maxima(target, name, dtype, variants):
    dims = {"N": 65536} | ({"M": 8} if name.endswith("rows") else {})
    assert {config["VARIANT"] for config in space_of(name, target, dtype, **dims).configs} == variants


def test_an_atomic_of_one_row_never_stands_beyond_the_last(ascend):
    """Ascend drops its mask, so a compiled config that needs the mask is refused for writing outside."""
    alone = [
        c
        for c in space_of("sum_rows", ascend, M=77, N=65536).configs
        if c["VARIANT"] == "atomic" and c["SUB_BLOCK_SIZE_M"] == 1
    ]
    assert alone
    assert all(77 % c["BLOCK_SIZE_M"] == 0 for c in alone)


def test_many_rows_are_not_cut_and_few_are(target):
    assert {c["VARIANT"] for c in space_of("sum_rows", target, M=131072, N=1024).configs} == {"direct"}
    parts = {math.ceil(65536 / c["BLOCK_SIZE_N"]) for c in space_of("max_rows", target, M=256, N=65536).configs}
    assert {1, 2, 4, 8, 16} <= parts


def test_a_single_row_may_be_one_tile_a_program_or_a_loop_over_as_many_programs_as_cores(ascend):
    configs = space_of("sum_all", ascend, N=2**22).configs
    assert any(c["BLOCK_SIZE_N"] == c["SUB_BLOCK_SIZE_N"] for c in configs)
    assert any(math.ceil(2**22 / c["BLOCK_SIZE_N"]) == 40 and c["SUB_BLOCK_SIZE_N"] < 2**15 for c in configs)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("dims", [{"M": 1000, "N": 8192}, {"M": 256, "N": 65536}, {"M": 131072, "N": 1024}])
def test_spaces_hold_hundreds_to_a_few_thousand_configs(target, dims):
    assert 150 <= len(space_of("sum_rows", target, **dims)) <= 4000


def test_accumulators_start_from_what_changes_nothing():
    problem = {name: Problem(name, dict.fromkeys(spec.dims, 8), "float32") for name, spec in SPECS.items()}
    initial = {name: spec.buffers(problem[name])["out_ptr"].initial for name, spec in SPECS.items()}
    zero, lowest = {"sum_all": 0.0, "sum_rows": 0.0}, {"max_all": -math.inf, "max_rows": -math.inf}
    assert initial == {**zero, **lowest, "prod_all": None, "prod_rows": None}


def test_traffic_is_one_read_of_the_input_and_one_write_of_the_output():
    rows, everything = Problem("sum_rows", {"M": 5, "N": 7}, "float16"), Problem("max_all", {"N": 9}, "float32")
    assert SPECS["sum_rows"].bytes(rows) == 2 * (35 + 5)
    assert SPECS["max_all"].bytes(everything) == 4 * (9 + 1)


def drawn(name, m, n):
    torch = pytest.importorskip("torch")
    x = torch.full((m, n), 3.0)
    SPECS[name].buffers(Problem(name, {"M": m, "N": n}, "float32"))["x_ptr"].draw(x, torch.Generator().manual_seed(1))
    return x


def test_maxima_are_drawn_with_ends_that_are_largest_a_row_without_numbers_and_one_with_a_nan():
    x = drawn("max_rows", 7, 50)
    assert x[[0, 3, 6], -1].tolist() == [8.0] * 3
    assert (x[[0, 3, 6], :-1] < 8.0).all() and (x[[4, 5]] < 8.0).all()
    assert (x[1] == -math.inf).all()
    assert x.isnan().nonzero().tolist() == [[2, 25]]
    assert x[[0, 3, 4, 5, 6]].isfinite().all()
    assert drawn("max_rows", 1, 50)[0, -1] == 8.0


def test_products_are_drawn_such_that_no_run_of_a_row_overflows():
    x = drawn("prod_rows", 20, 3000)
    levels = x.abs().log2()
    assert set(levels.flatten().tolist()) == {-1.0, 0.0, 1.0}
    runs = levels.cumsum(1)
    assert (runs.max(1).values - runs.min(1).values).max() <= 1
    assert 180 < float((levels != 0).sum(1).float().mean()) < 330
    assert 0.4 < float((x < 0).float().mean()) < 0.6
    assert 0.3 < float((drawn("prod_rows", 50, 20).abs() != 1).float().mean()) < 0.7  # half of a short row's steps


def test_each_row_of_products_is_drawn_by_itself_and_the_same_again_from_the_same_seed():
    x = drawn("prod_rows", 20, 300)
    assert len({tuple(row) for row in x.abs().tolist()}) == len({tuple(row) for row in x.sign().tolist()}) == 20
    assert x.equal(drawn("prod_rows", 20, 300))
