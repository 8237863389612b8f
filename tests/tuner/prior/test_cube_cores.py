"""The prior of products on cube cores: each effect is a factor of its own, which grows with its cause."""

from __future__ import annotations

import math

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Target
from tilewise.tuner.prior.cube_cores import _Kernel
from tilewise.tuner.prior.penalties import is_likely_to_fit, penalties, score
from tilewise.tuner.space.problem_checks import make_problem

GEMM = registry.load("gemm")
B3 = Target("ascend", "Ascend910B3", 40, 196608, 32, 65535)
B4 = Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)
TURNED = {"column_major": True}
TILES = {
    "VARIANT": "masked",
    "BLOCK_M": 128,
    "BLOCK_N": 256,
    "BLOCK_K": 256,
    "GROUP_M": 8,
    "SPLIT_K": 1,
    "PROGRAMS": 20,
    "multibuffer": True,
}


def factors(m=5120, n=5120, k=4096, dtype="float16", flags=None, target=B3, **changes):
    problem = make_problem(GEMM, {"M": m, "N": n, "K": k, **(flags or {})}, dtype)
    return penalties(GEMM, problem, {**TILES, **changes}, target)


@pytest.mark.parametrize("shape", [(5120, 5120, 4096), (16, 8192, 8192), (300, 512, 64)])
def test_every_penalty_is_a_factor_of_one_or_more(shape):
    assert all(factor >= 1 for factor in factors(*shape).values())


@pytest.mark.parametrize(
    ("name", "less", "more"),
    [
        ("tails", {}, {"m": 5130}),
        ("waves", {}, {"m": 5120 + 128, "n": 5120 + 256}),
        ("fractals", {}, {"dtype": "float16", "BLOCK_K": 32}),
        ("operand_loads", {}, {"BLOCK_M": 32, "BLOCK_N": 32}),
        ("l1_traffic", {}, {"BLOCK_M": 32, "BLOCK_N": 32}),
        ("turns", {}, {"multibuffer": False}),
        ("turns", {}, {"BLOCK_K": 512}),
        ("result_stores", {}, {"k": 256}),
        ("result_stores", {"k": 256, "flags": TURNED}, {"k": 256, "n": 5119, "flags": TURNED}),
        ("l1_traffic", {}, {"n": 5119}),
        ("starts", {}, {"PROGRAMS": 0}),
        ("on_chip", {}, {"BLOCK_M": 256}),
    ],
)
def test_a_penalty_grows_with_its_cause(name, less, more):
    assert factors(**more)[name] > factors(**less)[name]


def test_longer_rows_are_preferred_where_rows_begin_within_blocks():
    """As many elements in fewer rows touch fewer lines twice; whole rows touch none."""
    wide, high = {"BLOCK_M": 128, "BLOCK_N": 256}, {"BLOCK_M": 256, "BLOCK_N": 128}
    shared = {"k": 1003, "dtype": "float32", "BLOCK_K": 128, "target": B4}
    apart = [factors(1000, 999, **shared, **tile)["l1_traffic"] for tile in (wide, high)]
    assert apart[1] > 1.1 * apart[0]
    whole = [factors(1024, 1024, **shared | {"k": 1024}, **tile)["l1_traffic"] for tile in (wide, high)]
    assert whole[1] < 1.05 * whole[0] < apart[0]


def test_sums_that_exceed_l0c_are_not_expected_to_fit():
    assert is_likely_to_fit(factors())
    assert not is_likely_to_fit(factors(BLOCK_M=256))


def test_large_square_tiles_are_preferred_to_slivers():
    assert score(factors()) > 2 * score(factors(BLOCK_M=16))


def test_an_epilogue_costs_what_the_next_tile_does_not_hide():
    alone, silu, gelu = (factors(k=256, flags={"activation": name}) for name in ("none", "silu", "gelu"))
    assert alone["epilogue"] == 1.0 < silu["epilogue"] < gelu["epilogue"]
    assert factors(k=256, flags={"activation": "gelu"}, PROGRAMS=0)["epilogue"] > gelu["epilogue"]


def test_operands_that_leave_l1_for_products_make_room_for_the_next_ones():
    """A single buffer costs most where loads and products take equally long, and nothing hides the loads."""
    single = factors(multibuffer=False)["turns"]
    assert 1.0 < single < 1.8
    assert factors(multibuffer=False, BLOCK_K=64)["turns"] < single


def test_operands_in_many_short_rows_take_longer_to_come():
    short, long = (factors(BLOCK_N=32, flags={"column_major": flag})["l1_traffic"] for flag in (False, True))
    assert short > long > 1.0


def test_operands_that_just_fill_the_cache_come_from_it():
    """At this depth, operands and results have 192 MiB. A deeper product fetches its operands again."""
    slim = {"BLOCK_M": 32, "BLOCK_N": 128, "GROUP_M": 1}
    assert GEMM.bytes(make_problem(GEMM, {"M": 4096, "N": 4096, "K": 10240}, "float16")) == 192 << 20
    small, full, more = (factors(4096, 4096, k, **slim)["l1_traffic"] for k in (9728, 10240, 10752))
    assert full == pytest.approx(small, rel=1e-3)
    assert more > 1.5 * full


@pytest.mark.parametrize(
    ("rows", "tile", "fetched"),
    [
        (4096, (64, 64, 1), 1 * 64 + 20 * 64),
        (4096, (64, 64, 3), 3 * 64 + 6 * 64),
        (4096, (64, 64, 4), 4 * 64 + 5 * 64),
        (4096, (64, 64, 40), 40 * 64 + 1 * 64),
        (4096, (32, 128, 4), 4 * 32 + 5 * 128),
        (129, (64, 128, 20), 3 * 64 + 6 * 128),  # a group has no more rows of tiles than there are
        (64, (128, 64, 8), 1 * 128 + 20 * 64),
    ],
)
def test_what_the_cache_does_not_hold_is_fetched_once_per_group_of_rows(rows, tile, fetched):
    """20 cores share a group's rows and as many columns as are left for each; without a cache each brings its own."""
    config = {**TILES, **dict(zip(("BLOCK_M", "BLOCK_N", "GROUP_M"), tile, strict=True))}
    problem = make_problem(GEMM, {"M": rows, "N": 4096, "K": 4096}, "float16")
    tiling = GEMM.tiling(config, problem)
    kernel = _Kernel(GEMM, problem, config, tiling, tiling.dot, B3)
    of_each = 20 * (tile[0] + tile[1])
    assert kernel._bytes_per_cycle(2, 1, math.inf, 100.0) == pytest.approx(100.0 * of_each / fetched / 20)
    assert kernel._bytes_per_cycle(2, 1, 90.0, 100.0) == pytest.approx(min(90.0, 100.0 * of_each / fetched) / 20)
    assert kernel._bytes_per_cycle(1, 1, 90.0, 100.0) == 90.0 / 20
