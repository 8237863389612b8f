"""Tiles of heads, and the inputs that are drawn for attention."""

from __future__ import annotations

import pytest

from tilewise.kernels.attention.heads import WEIGHT_ROUNDING, draw_keys, draw_queries, padded, scale
from tilewise.kernels.spec import Problem


def test_a_side_is_the_power_of_two_that_holds_it_and_at_least_16():
    assert [padded(size) for size in (1, 16, 17, 64, 65, 256)] == [16, 16, 32, 64, 128, 256]
    assert scale(Problem("flash_attention", {"D": 64}, "float16")) == 0.125


def test_16_bit_weights_are_rounded_by_half_a_unit_in_the_last_place():
    torch = pytest.importorskip("torch")
    for dtype in ("bfloat16", "float16"):
        assert WEIGHT_ROUNDING[dtype] == torch.finfo(getattr(torch, dtype)).eps / 2


def test_queries_have_six_magnitudes_and_keys_one():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.empty(600, 4096), torch.empty(600, 4096)
    draw_queries(queries, generator)
    draw_keys(keys, generator)
    magnitudes = queries.std(-1).log2()
    assert set(magnitudes.round().int().tolist()) == {0, 1, 2, 3, 4, 5}
    assert (magnitudes - magnitudes.round()).abs().max() < 0.1
    assert (keys.std(-1).log2().abs() < 0.1).all()
