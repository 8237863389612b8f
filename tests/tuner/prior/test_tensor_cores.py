"""The prior of matrix products: each effect is a factor of its own, which grows with its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Target
from tilewise.tuner.prior.penalties import is_likely_to_fit, penalties, score
from tilewise.tuner.prior.tensor_cores import _Effects, _Kernel, _mma_warps
from tilewise.tuner.space.problem_checks import make_problem

GEMM = registry.load("gemm")
HOPPER = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90)
TILES = {
    "VARIANT": "descriptors",
    "BLOCK_M": 128,
    "BLOCK_N": 128,
    "BLOCK_K": 64,
    "GROUP_M": 8,
    "SPLIT_K": 1,
    "PROGRAMS": 0,
    "PARTS_N": 1,
    "WARP_SPECIALIZE": False,
    "num_warps": 8,
    "num_stages": 3,
}


def factors(m=8192, n=8192, k=8192, dtype="bfloat16", **changes):
    problem = make_problem(GEMM, {"M": m, "N": n, "K": k}, dtype)
    return penalties(GEMM, problem, {**TILES, **changes}, HOPPER)


def test_every_penalty_is_a_factor_of_one_or_more():
    for shape in ((8192, 8192, 8192), (16, 8192, 8192), (300, 512, 64)):
        assert all(factor >= 1 for factor in factors(*shape).values())


@pytest.mark.parametrize(
    ("name", "shape", "less", "more"),
    [
        ("tails", (8192, 8192, 8192), {}, None),
        ("waves", (8192, 8192, 8192), {}, None),
        ("mma_shape", (8192, 8192, 8192), {}, {"BLOCK_M": 16, "num_warps": 4}),
        ("intensity", (8192, 8192, 8192), {"BLOCK_N": 256}, {"BLOCK_M": 64, "BLOCK_N": 64}),
        ("l2_reuse", (8192, 8192, 8192), {}, {"GROUP_M": 1}),
        ("in_flight", (8192, 8192, 8192), {"num_stages": 4}, {"num_stages": 2, "BLOCK_K": 32}),
        ("issue", (8192, 8192, 8192), {"WARP_SPECIALIZE": True, "num_warps": 4}, {"VARIANT": "pointers"}),
        ("epilogue", (2048, 2048, 512), {"WARP_SPECIALIZE": True, "num_warps": 4, "PROGRAMS": 132}, {}),
        ("epilogue", (2048, 2048, 512), {"num_stages": 2, "PARTS_N": 2}, {}),
        ("starts", (2048, 2048, 2048), {"VARIANT": "pointers"}, {"VARIANT": "pointers", "SPLIT_K": 4}),
        ("registers", (8192, 8192, 8192), {}, {"BLOCK_N": 256, "num_warps": 4}),
        ("on_chip", (8192, 8192, 8192), {}, {"num_stages": 8}),
    ],
)
def test_a_penalty_grows_with_its_cause(name, shape, less, more):
    if more is None:  # the same config at a size that leaves a tail of tiles or of a tile
        worse = {"tails": (8200, 8192, 8192), "waves": (1664, 1408, 8192)}[name]
        assert factors(*worse)[name] > factors(*shape)[name]
    else:
        assert factors(*shape, **more)[name] > factors(*shape, **less)[name]


def test_columns_that_no_other_program_reads_take_longer_from_the_l2_cache():
    """Of tiles of 64 rows, the columns are most of the operands."""
    tile = {"BLOCK_M": 64, "num_warps": 4}
    assert (
        factors(2048, 2048, 2048, **tile, GROUP_M=1)["intensity"] > 1.2 * factors(2048, 2048, 2048, **tile)["intensity"]
    )


def test_programs_fewer_than_multiprocessors_share_all_of_the_memory():
    """112 programs of 64 columns are no worse than 224 of 32, of which some multiprocessors have two."""
    narrow = {"BLOCK_M": 16, "BLOCK_K": 128, "GROUP_M": 1, "num_warps": 4, "num_stages": 5}
    few, many = (score(factors(16, 7168, 8192, **{**narrow, "BLOCK_N": cols})) for cols in (64, 32))
    assert few > many


def test_tiles_that_the_data_leave_empty_take_no_time():
    """Of 38 rows each, eight groups fill one tile of 64 rows, and three of 16."""
    spec = registry.load("grouped_gemm")
    problem = make_problem(spec, {"M": 304, "N": 4096, "K": 1024, "G": 8}, "float16")
    config = {**spec.default(problem, HOPPER), "BLOCK_M": 64, "GROUP_M": 1}
    tiling = spec.tiling(config, problem)
    assert tiling.tiles * tiling.dot.filled == pytest.approx(8 * 4096 / config["BLOCK_N"])
    cycles = [
        _Kernel(spec, problem, config, tiling, dot, HOPPER).cycles(_Effects(*[True] * 9))
        for dot in (tiling.dot, replace(tiling.dot, filled=1.0))
    ]
    assert cycles[0] < cycles[1]


def test_hoppers_older_instruction_multiplies_8_bit_floats_as_16_bit_ones():
    """Only the reads of shared memory are fewer."""
    low = {"BLOCK_M": 32, "num_warps": 1}
    eight, sixteen = (factors(**low, dtype=dtype)["mma_shape"] for dtype in ("float8_e4m3fn", "bfloat16"))
    assert 1.6 < eight / sixteen < 2


def test_each_warp_of_the_older_instruction_reads_its_rows_and_columns_again():
    """Eight warps beside each other read all rows of a low tile eight times, four of them four times."""
    few, many = (factors(BLOCK_M=32, num_warps=warps)["mma_shape"] for warps in (4, 8))
    assert many > 1.2 * few


@pytest.mark.parametrize(
    ("m", "n", "warps", "divided"),
    [
        (16, 32, 4, (1, 4)),
        (16, 128, 8, (1, 8)),
        (32, 32, 4, (2, 2)),
        (32, 32, 8, (2, 4)),
        (32, 64, 4, (1, 4)),
        (32, 128, 8, (1, 8)),
        (16, 16, 8, (4, 2)),
    ],
)
def test_warps_are_divided_as_by_triton(m, n, warps, divided):
    """`warpsPerCTA` in what Triton 3.6.0 compiles a plain product to, for compute capability 9.0."""
    assert _mma_warps(m, n, warps) == divided


def test_operands_beyond_shared_memory_are_not_likely_to_fit():
    assert is_likely_to_fit(factors())
    assert not is_likely_to_fit(factors(num_stages=8))


def test_large_tiles_win_large_products_and_many_programs_those_of_few_rows():
    small = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4}
    assert score(factors()) > score(factors(**small))
    narrow = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 1, "num_warps": 4, "num_stages": 5}
    assert score(factors(16, **narrow)) > score(factors(16, **{**narrow, "BLOCK_N": 256}))


def test_eight_bit_products_take_half_the_time_as_their_operands_do():
    """So operands hold them up as much as 16-bit ones, and a trip of twice the depth hides as much latency."""
    wide, narrow = factors(), factors(dtype="float8_e4m3fn")
    assert narrow["intensity"] == pytest.approx(wide["intensity"], rel=1e-3)
    assert wide["intensity"] > 1.1
    deep = factors(dtype="float8_e4m3fn", BLOCK_K=128)
    assert deep["in_flight"] == pytest.approx(wide["in_flight"], rel=1e-3)
    assert wide["in_flight"] > 1.04


def test_an_accumulator_of_up_to_16_rows_takes_as_long_as_one_of_16():
    problem, config = make_problem(GEMM, {"M": 16, "N": 8192, "K": 8192}, "bfloat16"), {**TILES, "BLOCK_M": 16}
    tiling = GEMM.tiling(config, problem)

    def cycles(rows, **counted):
        kernel = _Kernel(GEMM, problem, config, tiling, replace(tiling.dot, m=rows), HOPPER)
        return kernel.cycles(_Effects(tails=True, **counted))

    assert cycles(1) == cycles(16) < cycles(17)
    assert cycles(8, mma_shape=True) < cycles(16, mma_shape=True)  # its shape is what costs


def test_a_kernel_that_says_that_it_loads_nothing_has_a_cost_too():
    problem = make_problem(GEMM, {"M": 512, "N": 512, "K": 512}, "bfloat16")
    spec = replace(GEMM, tiling=lambda config, problem: replace(GEMM.tiling(config, problem), streamed_bytes=0))
    assert all(factor >= 1 for factor in penalties(spec, problem, TILES, HOPPER).values())
