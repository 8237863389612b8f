"""The prior of attention on cube and vector cores: each effect is a factor of its own, which grows with its cause."""

from __future__ import annotations

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Target
from tilewise.tuner.prior.penalties import penalties, score
from tilewise.tuner.space.problem_checks import make_problem

FLASH, DECODE = registry.load("flash_attention"), registry.load("decode_attention")
B4 = Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)
HEADS = {"B": 2, "H": 16, "HKV": 16, "D": 128}
TILES = {"VARIANT": "masked", "BLOCK_M": 128, "BLOCK_N": 128, "set_workspace_multibuffer": 0}


def flash(queries=2048, keys=2048, causal=False, dims=None, **changes):
    problem = make_problem(FLASH, {**HEADS, "Q": queries, "K": keys, "causal": causal, **(dims or {})}, "float16")
    return penalties(FLASH, problem, {**TILES, **changes}, B4)


def decode(sequences=4, pages=16, **changes):
    dims = {"B": sequences, "H": 32, "HKV": 8, "PAGES": pages, "PAGE": 128, "D": 128}
    problem = make_problem(DECODE, dims, "bfloat16")
    return penalties(DECODE, problem, {"VARIANT": "paged", "BLOCK_N": 128, "SPLITS": 1, **changes}, B4)


@pytest.mark.parametrize("factors", [flash(), flash(causal=True), flash(1, 1), flash(37, 500), decode(), decode(1, 1)])
def test_every_penalty_is_a_factor_of_one_or_more(factors):
    assert factors and all(factor >= 1 for factor in factors.values())


@pytest.mark.parametrize(
    ("name", "less", "more"),
    [
        ("tails", {}, {"queries": 2049}),
        ("waves", {"dims": {"B": 5, "H": 4, "HKV": 4}}, {"dims": {"B": 7, "H": 3, "HKV": 3}}),
        ("operand_loads", {}, {"BLOCK_M": 64}),
        ("sums", {}, {"BLOCK_N": 64}),
        ("softmax", {"dims": {"D": 128}}, {"dims": {"D": 64}}),
        ("workspace", {"set_workspace_multibuffer": 2}, {}),
        ("workspace", {"dims": {"B": 1, "H": 4, "HKV": 4}, "queries": 640}, {}),
        ("turns", {}, {"set_workspace_multibuffer": 2}),
        ("turns", {}, {"causal": True}),
        ("starts", {}, {"keys": 256}),
    ],
)
def test_a_penalty_grows_with_its_cause(name, less, more):
    assert flash(**more)[name] > flash(**less)[name]


def test_large_tiles_are_preferred():
    assert score(flash()) > 1.2 * score(flash(BLOCK_M=64, BLOCK_N=64))
    assert score(decode()) > score(decode(BLOCK_N=64))


def test_a_vector_loop_in_parts_lets_trips_of_decoding_overlap():
    assert decode(tile_mix_vector_loop=0)["turns"] > decode(tile_mix_vector_loop=4)["turns"]
    assert score(decode(tile_mix_vector_loop=4)) > score(decode(tile_mix_vector_loop=0))


def test_keys_are_split_only_among_idle_cores():
    assert score(decode(1, SPLITS=2)) > score(decode(1))
    assert score(decode(5)) > score(decode(5, SPLITS=2))
