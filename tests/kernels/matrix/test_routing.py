"""Loads of groups, the most tiles that they can fill, and the experts of tokens."""

from __future__ import annotations

import importlib.util
import itertools
import math

import pytest

from tilewise.kernels.matrix.routing import chances, draw_experts, expected_tiles, experts_hit, loads, row_tiles


def test_rows_are_shared_evenly_or_by_zipfs_law():
    assert loads(12, 4, skewed=False) == (3, 3, 3, 3)
    assert loads(25, 4, skewed=True) == (12, 6, 4, 3)
    assert loads(2, 5, skewed=False).count(1) == 2


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (5, 7), (1000, 64), (33, 256), (100_000, 3)])
def test_every_row_has_a_group(rows, groups, skewed):
    found = loads(rows, groups, skewed=skewed)
    assert (sum(found), len(found), min(found) >= 0) == (rows, groups, True)


@pytest.mark.parametrize(("rows", "groups", "block"), [(9, 3, 4), (7, 2, 3), (2, 3, 4), (10, 1, 4)])
def test_no_division_of_the_rows_has_more_tiles(rows, groups, block):
    divisions = (sizes for sizes in itertools.product(range(rows + 1), repeat=groups) if sum(sizes) == rows)
    assert row_tiles(rows, groups, block) == max(sum(math.ceil(n / block) for n in sizes) for sizes in divisions)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(("tokens", "experts", "chosen", "block"), [(1, 8, 2, 16), (5, 4, 2, 2), (7, 3, 3, 4)])
def test_tiles_are_expected_by_the_chances_of_all_numbers_of_tokens(tokens, experts, chosen, block, skewed):
    expected = sum(
        math.comb(tokens, rows) * chance**rows * (1 - chance) ** (tokens - rows) * math.ceil(rows / block)
        for chance in chances(experts, chosen, skewed=skewed)
        for rows in range(tokens + 1)
    )
    assert expected_tiles(tokens, experts, chosen, block, skewed=skewed) == pytest.approx(expected)


def test_many_tokens_fill_their_tiles_but_for_half_of_the_last():
    assert expected_tiles(100_000, 8, 2, 64, skewed=False) == pytest.approx(200_000 / 64 + 8 / 2, rel=1e-3)


def test_chances_add_up_to_the_experts_that_a_token_has_and_are_at_most_one():
    assert chances(8, 2, skewed=False) == (0.25,) * 8
    assert chances(4, 1, skewed=True) == pytest.approx([0.48, 0.24, 0.16, 0.12])
    assert chances(4, 3, skewed=True) == pytest.approx([1, 12 / 13, 8 / 13, 6 / 13])
    for experts, chosen in ((1, 1), (5, 5), (64, 6), (300, 8), (128, 127)):
        found = chances(experts, chosen, skewed=True)
        assert sum(found) == pytest.approx(chosen)
        assert max(found) <= 1


def test_few_tokens_hit_few_experts():
    assert experts_hit(1, 64, 6, skewed=False) == pytest.approx(6)
    assert experts_hit(2, 4, 2, skewed=False) == pytest.approx(3)
    assert experts_hit(10_000, 64, 6, skewed=True) == pytest.approx(64)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("skewed", [False, True])
def test_experts_are_drawn_as_often_as_their_chance_says(skewed):
    import torch

    generator = torch.Generator().manual_seed(3)
    drawn = draw_experts(20_000, 6, 3, generator, skewed=skewed)
    assert all(len(set(row)) == 3 for row in drawn[:500].tolist())
    shares = (drawn.flatten().bincount(minlength=6) / 20_000).sort(descending=True).values
    assert shares.tolist() == pytest.approx(chances(6, 3, skewed=skewed), abs=0.02)
    few = [len(draw_experts(4, 30, 2, generator, skewed=skewed).unique()) for _ in range(400)]
    assert sum(few) / 400 == pytest.approx(experts_hit(4, 30, 2, skewed=skewed), rel=0.05)
