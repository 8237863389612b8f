"""Loads of groups: how many rows are routed to each, for problems whose sizes depend on it."""

from __future__ import annotations

import functools
import itertools

from tilewise.kernels.spec import Flag

__all__ = ["SKEWED", "loads", "row_tiles"]

SKEWED = Flag("skewed", (False, True))
"""Rows are routed by Zipf's law, as loads of experts often are, and not evenly."""


@functools.lru_cache(maxsize=64)
def loads(rows: int, groups: int, *, skewed: bool) -> tuple[int, ...]:
    """Return the rows of each group: equal shares, or shares of 1, 1/2, 1/3, ... if `skewed`, rounded to whole rows."""
    shares = [1 / rank if skewed else 1.0 for rank in range(1, groups + 1)]
    total = sum(shares)
    ends = [round(rows * share / total) for share in itertools.accumulate(shares, initial=0.0)]
    return tuple(last - first for first, last in itertools.pairwise(ends))


def row_tiles(rows: int, groups: int, block: int) -> int:
    """Return the most tiles of `block` rows that `rows` rows have, however they are divided among the groups.

    Each group that has rows fills up to one tile in part: most are needed if as many as possible have a single row.
    """
    single = min(rows, groups)
    return single + (rows - single) // block
