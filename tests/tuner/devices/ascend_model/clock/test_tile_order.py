"""The share of reads that misses the L2 cache, by the order of tiles."""

from __future__ import annotations

import pytest

from tilewise.tuner.devices.ascend_model.clock.tile_order import _missed


def tile(**panels):
    """Return a tile that reads these panels; each is of the buffer that its name begins with, `a` or `b`."""
    return {name: ("ab".index(name[0]), size) for name, size in panels.items()}


@pytest.mark.parametrize(
    ("waves", "cache", "shares"),
    [
        ([[tile(a0=10, b0=5)]], 100, {0: 1.0, 1: 1.0}),
        ([[tile(a0=10, b0=5), tile(a0=10, b1=5)]], 100, {0: 0.5, 1: 1.0}),  # side by side, fetched once
        ([[tile(a0=10)], [tile(a0=10)], [tile(a0=10)], [tile(a1=10)]], 10, {0: 0.5}),
        ([[tile(a0=10)], [tile(a1=10)], [tile(a0=10)]], 20, {0: 2 / 3}),  # both are held
        ([[tile(a0=10)], [tile(a1=10)], [tile(a0=10)]], 19, {0: 1.0}),
        ([[tile(a0=10), tile(a1=10)], [tile(a1=10), tile(a0=10)]], 1, {0: 0.75}),  # the last panel stays, whatever fits
        ([[tile(a0=10)], [tile(a1=10)], [tile(a0=10)], [tile(a2=10)], [tile(a0=10)]], 20, {0: 0.6}),  # the older goes
        ([[tile(a0=0, b0=4)]], 10, {0: 1.0, 1: 1.0}),
    ],
)
def test_a_panel_is_fetched_again_once_the_cache_has_forgotten_it(waves, cache, shares):
    assert _missed(waves, cache, complete=True) == pytest.approx(shares)


def test_of_a_launch_that_goes_on_the_second_half_counts():
    waves = [[tile(a0=10)], [tile(a1=10)], [tile(a0=10)], [tile(a2=10)]]
    assert _missed(waves, 100, complete=False) == {0: 0.5}
    assert _missed(waves, 100, complete=True) == {0: 0.75}
    assert _missed(waves[:3], 100, complete=False) == {0: 0.5}
