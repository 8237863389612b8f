"""Penalties: 1 without a flaw, rising with it, and the published winner ahead."""

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest

from tilewise.benchmarks.search.judge import landscapes_used_for
from tilewise.benchmarks.search.search import load_recorded
from tilewise.kernels import registry
from tilewise.kernels.spec import Axis, Problem, Target, Tiling
from tilewise.tuner.prior.penalties import is_likely_to_fit, penalties, score, tiling_facts
from tilewise.tuner.space.search_space import enumerate_space

SPEC = registry.load("row_reduce")
ASCEND = Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)
NVIDIA = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1)


def of(block, sub, cols, *, m=1000, n=8192, dtype="float32", multibuffer=True):
    config = {"BLOCK_SIZE_M": block, "SUB_BLOCK_SIZE_M": sub, "BLOCK_SIZE_N": cols, "multibuffer": multibuffer}
    return penalties(SPEC, Problem("row_reduce", {"M": m, "N": n}, dtype), config, ASCEND)


def on_gpu(block, sub, cols, warps=4, *, m=16384, n=8192):
    config = {"BLOCK_SIZE_M": block, "SUB_BLOCK_SIZE_M": sub, "BLOCK_SIZE_N": cols, "num_warps": warps, "num_stages": 3}
    return penalties(SPEC, Problem("row_reduce", {"M": m, "N": n}, "float32"), config, NVIDIA)


def of_sums(block, sub, cols, *, m=1000, n=8192, dtype="float32", **changes):
    """Return the penalties for a kernel that does little besides loading."""
    rows = {"VARIANT": "direct", "BLOCK_SIZE_M": block, "SUB_BLOCK_SIZE_M": sub}
    config = rows | {"BLOCK_SIZE_N": n, "SUB_BLOCK_SIZE_N": cols, "multibuffer": True}
    spec = with_tiling(registry.load("sum_rows"), **changes)
    return penalties(spec, Problem("sum_rows", {"M": m, "N": n}, dtype), config, ASCEND)


def of_bias(block, sub, cols, *, m=200, **changes):
    """Return the penalties for an element-wise kernel."""
    rows = {"VARIANT": "blocks", "BLOCK_SIZE_M": block, "SUB_BLOCK_SIZE_M": sub}
    spec = with_tiling(registry.load("relu_bias_scale"), **changes)
    problem = Problem("relu_bias_scale", {"M": m, "N": 4096}, "float32")
    return penalties(spec, problem, rows | {"BLOCK_SIZE_N": cols, "multibuffer": True}, ASCEND)


def with_tiling(spec, **changes):
    return dataclasses.replace(
        spec, tiling=lambda config, problem: dataclasses.replace(spec.tiling(config, problem), **changes)
    )


def rises(values):
    return all(a < b for a, b in itertools.pairwise(values))


@pytest.mark.parametrize(
    ("block", "factor"),
    [
        (25, 1.0),  # 40 programs on 40 cores
        (5, 1.0),  # 200: five full waves
        (20, 1.6),  # 50: the busiest core takes 40 rows of 25
        (50, 2.0),  # 20: half the cores idle
        (100, 4.0),  # 10
    ],
)
def test_waves(block, factor):
    """Approximate, because the launch takes the same time anyway."""
    assert of(block, 5, 256)["waves"] == pytest.approx(factor, rel=0.03)


def test_waves_of_fewer_rows_than_cores_do_not_tell_configs_apart():
    assert of(1, 1, 64, m=1)["waves"] == of(1, 1, 8192, m=1)["waves"] > 2


def test_idle_cores_cost_nothing_where_the_memory_is_busy_anyway():
    """32 programs of 16 rows, or 40 of 13."""
    assert of(16, 16, 256, m=512)["waves"] == pytest.approx(1.25, rel=0.02)
    assert of_sums(16, 16, 512, m=512)["waves"] == 1.0


@pytest.mark.parametrize(
    ("block", "sub", "factor"), [(25, 25, 1), (25, 5, 1), (25, 1, 1), (25, 4, 1.12), (25, 13, 1.04), (25, 24, 1.92)]
)
def test_row_tails(block, sub, factor):
    assert of(block, sub, 256)["row_tails"] == pytest.approx(factor, rel=0.03)


@pytest.mark.parametrize(
    ("n", "cols", "factor"),
    [(8192, 256, 1), (8192, 8192, 1), (8191, 8192, 8192 / 8191), (300, 256, 512 / 300), (65, 64, 128 / 65)],
)
def test_column_tails(n, cols, factor):
    assert of(25, 25, cols, m=50_000, n=n)["column_tail"] == pytest.approx(factor, rel=0.06)


def test_short_trips_of_either_loop_cost_more_the_shorter_they_are():
    assert rises([of(25, 5, cols)["loop_trips"] for cols in (4096, 1024, 256, 64)])
    assert rises([of(25, sub, 2048)["sub_tiles"] for sub in (25, 5, 1)])
    assert 1 < of(25, 1, 16384)["loop_trips"] < 1.1


def test_short_rows_of_a_transfer_cost_more():
    assert of_sums(25, 5, 4096)["transfer"] <= of_sums(25, 5, 512)["transfer"] < of_sums(25, 5, 128)["transfer"]
    assert of_sums(25, 5, 64, dtype="float16")["transfer"] > of_sums(25, 5, 128, dtype="float16")["transfer"]
    assert 1 <= of_sums(25, 1, 8192)["transfer"] < 1.1


def test_a_trip_over_an_edge_is_filled_first_unless_it_is_moved_back():
    """1000 rows are 41 blocks of 24 and a rest, or 40 blocks of 25; 6 trips of 4 rows leave one row of such a block."""
    assert of(25, 25, 256)["edges"] == of(25, 5, 256)["edges"] == 1.0
    assert rises([1.0, of(25, 4, 256)["edges"]])
    assert rises([1.0, of(24, 24, 256)["edges"]])
    assert of_bias(5, 2, 4096)["edges"] == 1.0 < of_bias(5, 2, 4096, moved_back=False)["edges"]


def test_two_trips_that_load_apart_wait_for_nothing():
    assert of_sums(25, 5, 4608)["edges"] < of_sums(25, 5, 4608, first_apart=False)["edges"]


def test_a_buffer_that_is_stored_from_is_free_later():
    def product(**changes):
        return math.prod(of_bias(5, 1, 4096, **changes).values())

    assert product(in_place=False) < product(in_place=True)


def test_reductions_and_further_operations_are_work():
    def product(**changes):
        return math.prod(of_sums(25, 5, 8192, **changes).values())

    assert product(reductions=0) <= product(reductions=1) < product(reductions=3)
    assert product(operations=0) <= product(operations=1) < product(operations=30)


def test_on_chip_memory_is_a_penalty_where_double_buffering_or_the_tile_itself_does_not_fit():
    fits_twice, fits_once = of(25, 25, 256), of(25, 5, 2048)
    assert fits_twice["overlap"] == fits_twice["on_chip"] == fits_once["on_chip"] == 1.0
    assert of(25, 25, 256, multibuffer=False)["overlap"] > 1.0 < fits_once["overlap"]
    overflows = [of(25, rows, 2048) for rows in (8, 12, 25)]
    assert rises([fits_once["on_chip"], *(factors["on_chip"] for factors in overflows)])
    assert is_likely_to_fit(fits_twice)
    assert is_likely_to_fit(fits_once)
    assert not any(map(is_likely_to_fit, overflows))


def test_second_buffers_may_lie_in_what_is_free_meanwhile():
    """Five rows of 4096 columns and half as much for reducing them fit once; twice only if that half may be reused."""
    of_tile = functools.partial(of_sums, 25, 5, 4096, n=4096)
    assert of_tile()["overlap"] > of_tile(doubling_bytes=0)["overlap"] == 1.0


def test_on_a_gpu_too_few_bytes_in_flight_too_many_registers_and_idle_threads_are_penalties():
    flawless = on_gpu(2, 2, 1024, 8)
    assert flawless["in_flight"] == flawless["registers"] == flawless["eviction"] == 1.0
    assert rises([on_gpu(1, 1, cols, 1)["in_flight"] for cols in (128, 64, 32)])
    assert rises([on_gpu(4, 4, cols)["registers"] for cols in (512, 2048, 4096)])
    assert rises([on_gpu(block, 4, 512)["loop_trips"] for block in (4, 8, 32)])
    assert rises([on_gpu(1, 1, 64, warps)["idle_threads"] for warps in (1, 8, 32)])
    assert is_likely_to_fit(flawless)


def test_on_a_gpu_a_program_that_is_alone_waits_for_its_loads():
    alone, among_others = on_gpu(8, 8, 8192, 32), on_gpu(1, 1, 2048, 8)
    assert alone["overlap"] > among_others["overlap"] > 1.0


def test_on_a_gpu_lines_of_a_problem_beyond_the_second_level_cache_are_better_given_up_first():
    small, large = (Problem("row_reduce", {"M": m, "N": 8192}, "float32") for m in (1000, 4000))
    tile = {"BLOCK_SIZE_M": 2, "SUB_BLOCK_SIZE_M": 2, "BLOCK_SIZE_N": 1024, "num_warps": 4, "num_stages": 1}
    keep, drop = ({**tile, "EVICT_FIRST": first} for first in (False, True))
    assert penalties(SPEC, small, keep, NVIDIA) == penalties(SPEC, small, drop, NVIDIA)
    assert penalties(SPEC, large, keep, NVIDIA)["eviction"] > penalties(SPEC, large, drop, NVIDIA)["eviction"] == 1.0


@pytest.mark.parametrize("target", [ASCEND, NVIDIA], ids=["ascend", "nvidia"])
@pytest.mark.parametrize("dims", [(1, 1), (7, 13), (1000, 8192), (131072, 1), (1, 10**6)])
def test_every_penalty_of_every_config_is_finite_and_at_least_1(target, dims):
    problem = Problem("row_reduce", dict(zip(("M", "N"), dims, strict=True)), "bfloat16")
    configs = enumerate_space(SPEC, problem, target).configs
    rows = [penalties(SPEC, problem, config, target) for config in configs[:: max(1, len(configs) // 100)]]
    assert all(1 <= factor < math.inf for row in rows for factor in row.values())
    assert len({tuple(row) for row in rows}) == 1
    assert all(0 < score(row) <= 1 for row in rows)


def test_a_kernel_that_streams_nothing_has_penalties_too(bowl):
    nothing = Tiling((Axis("M", 64, 1, 1),), streamed_bytes=0, resident_bytes=0)
    spec = dataclasses.replace(bowl.SPEC, tiling=lambda config, problem: nothing)
    for target in (ASCEND, NVIDIA):
        factors = penalties(spec, Problem("bowl", {"M": 64}, "float32"), bowl.DEFAULT, target)
        assert 0 < score(factors) < 1


def test_the_published_winner_scores_above_the_other_three():
    winner, *others = (score(of(*tiles)) for tiles in [(25, 25, 256), (50, 25, 256), (25, 4, 2048), (20, 20, 256)])
    assert winner > max(others)


def test_the_score_is_one_over_the_product():
    assert score({"a": 2.0, "b": 1.6}) == pytest.approx(1 / 3.2)
    assert score({}) == 1


def test_facts_of_a_tiling():
    problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
    config = {"BLOCK_SIZE_M": 20, "SUB_BLOCK_SIZE_M": 8, "BLOCK_SIZE_N": 256}
    facts = tiling_facts(SPEC.tiling(config, problem), ASCEND)
    assert facts == {"programs": 50, "cores": 40, "waves": 2, "tail_rows": 4, "trips": 3 * 32}


EARLIER_CLOCK = ("batch_norm-4x512x4096", "sum_rows-1000x8192")
"""Landscapes of version 6 of the model whose best configs the costs of version 7, which are the prior's, hold slow."""


@pytest.mark.in_part(9)
@pytest.mark.parametrize(
    "file",
    [
        file
        for file in landscapes_used_for("design")
        if "modelled" in file.name and not file.name.startswith(EARLIER_CLOCK)
    ],
    ids=lambda file: file.name.split("-f")[0],
)
def test_one_of_the_first_five_is_within_2_percent_on_landscapes_that_the_prior_was_designed_on(file):
    """`tilewise bench judge` looks at the others: a test would turn them into landscapes of the design."""
    recorded = load_recorded(str(file))
    table, likely = recorded.prior
    first = np.lexsort((table.sum(axis=1), ~likely))[:5]
    assert any((time := recorded.times[index]) and time <= 1.02 * recorded.optimum for index in first)
