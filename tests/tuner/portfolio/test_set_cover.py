"""The smallest set covers."""

from __future__ import annotations

import itertools
import random

import pytest

from tilewise.tuner.portfolio import set_cover
from tilewise.tuner.portfolio.set_cover import _Search, smallest_set_cover


def test_a_greedy_choice_is_undone_where_fewer_masks_do():
    masks = [0b011110, 0b000111, 0b111000]
    assert smallest_set_cover(masks) == ([1, 2], True)


@pytest.mark.parametrize("seed", range(30))
def test_no_smaller_set_covers_everything(seed):
    draw = random.Random(seed)
    masks = [draw.getrandbits(9) & draw.getrandbits(9) for _ in range(8)]
    everything = 0
    for mask in masks:
        everything |= mask
    places, proven = smallest_set_cover(masks)
    covered = 0
    for place in places:
        covered |= masks[place]
    assert proven
    assert covered == everything
    for fewer in itertools.combinations(masks, max(0, len(places) - 1)):
        union = 0
        for mask in fewer:
            union |= mask
        assert union != everything or not everything


def test_a_search_that_takes_too_long_says_that_nothing_is_proven():
    draw = random.Random(1)
    masks = [sum(1 << bit for bit in draw.sample(range(150), 9)) for _ in range(200)]
    places, proven = smallest_set_cover(masks)
    covered = 0
    for place in places:
        covered |= masks[place]
    assert not proven
    assert covered.bit_count() == len(set().union(*({b for b in range(150) if m >> b & 1} for m in masks)))


def test_earlier_masks_are_preferred_and_equal_ones_count_once():
    assert smallest_set_cover([0b011, 0b011, 0b100, 0b100]) == ([0, 2], True)
    assert smallest_set_cover([0b01, 0b10, 0b11]) == ([2], True)
    assert smallest_set_cover([0b001, 0b110, 0b011, 0b100]) == ([1, 0], True)  # the first of the two that cover most
    assert smallest_set_cover([]) == smallest_set_cover([0, 0]) == ([], True)


def test_a_search_beyond_its_limit_ends_at_once(monkeypatch):
    monkeypatch.setattr(set_cover, "_STEP_LIMIT", 200)
    draw = random.Random(1)
    masks = [sum(1 << bit for bit in draw.sample(range(40), 6)) for _ in range(60)]
    search = _Search(masks, range(len(masks)), (1 << 40) - 1)
    assert search.cover((1 << 40) - 1, 9) is None
    assert 200 < search.steps < 400
    assert search.cover(0, 0) == []


@pytest.mark.parametrize(("limit", "found"), [(4, ([1, 2], True)), (3, ([0, 1, 2], False)), (0, ([0, 1, 2], False))])
def test_a_search_may_take_as_many_steps_as_its_limit_and_no_more(monkeypatch, limit, found):
    """One step finds that no mask covers everything, three that the last two do."""
    monkeypatch.setattr(set_cover, "_STEP_LIMIT", limit)
    assert smallest_set_cover([0b011110, 0b000111, 0b111000]) == found
