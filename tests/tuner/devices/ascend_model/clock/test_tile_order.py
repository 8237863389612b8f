"""The share of reads that misses the L2 cache, by the order of tiles."""

from __future__ import annotations

import math

import pytest

from tilewise.tuner.devices.ascend_model.clock.tile_order import _missed

LEFT = 1 - math.exp(-1)
"""The share of a panel that has left a cache that took as many bytes as it holds."""


def tile(**panels):
    """Return a tile that reads these panels; each is of the buffer that its name begins with, `a` or `b`."""
    return {name: ("ab".index(name[0]), size) for name, size in panels.items()}


@pytest.mark.parametrize(
    ("waves", "cache", "shares"),
    [
        ([[tile(a0=10, b0=5)]], 100, {0: 1.0, 1: 1.0}),
        ([[tile(a0=10, b0=5), tile(a0=10, b1=5)]], 100, {0: 0.5, 1: 1.0}),  # side by side, fetched once
        ([[tile(a0=10), tile(a1=10)], [tile(a1=10), tile(a0=10)]], 1e-9, {0: 1.0}),
        ([[tile(a0=10), tile(a1=10)], [tile(a1=10), tile(a0=10)]], 1e9, {0: 0.5}),
        ([[tile(a0=10)], [tile(a1=10)], [tile(a0=10)]], 20, {0: (2 + LEFT) / 3}),  # two panels since, of one's size
        ([[tile(a0=10)], [tile(b0=30)], [tile(a0=10)]], 40, {0: (1 + LEFT) / 2, 1: 1.0}),
        ([[tile(a0=10)], [tile(a0=10)], [tile(a0=10)]], 10, {0: (1 + LEFT + 1 - math.exp(-LEFT)) / 3}),
        ([[tile(a0=0, b0=4)]], 10, {0: 1.0, 1: 1.0}),
    ],
)
def test_what_leaves_the_cache_is_random_and_is_fetched_again(waves, cache, shares):
    assert _missed(waves, cache, complete=True).shares == pytest.approx(shares)


def test_of_a_launch_that_goes_on_the_second_half_counts():
    waves = [[tile(a0=10)], [tile(a1=10)], [tile(a0=10)], [tile(a2=10)]]
    assert _missed(waves, 1e9, complete=False).shares == pytest.approx({0: 0.5})
    assert _missed(waves, 1e9, complete=True).shares == pytest.approx({0: 0.75})
    assert _missed(waves[:3], 1e9, complete=False).shares == pytest.approx({0: 0.5})


def test_bytes_that_miss_are_told_wave_by_wave_without_those_that_are_stored():
    stored = {"c0": (-1, 7)}
    waves = [[tile(a0=10, b0=30), tile(a1=10, b0=30)], [{**tile(a2=10, b0=30), **stored}]]
    assert _missed(waves, 1e9, complete=True).waves == pytest.approx([50, 10])
    assert _missed(waves, 1e9, complete=False).waves == ()
