"""Loads of groups, and the most tiles that they can fill."""

from __future__ import annotations

import itertools
import math

import pytest

from tilewise.kernels.matrix.routing import loads, row_tiles


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
