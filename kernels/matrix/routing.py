"""Routing of rows to groups and of tokens to experts, for problems whose work depends on it."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from typing import Any

from tilewise.kernels.spec import Flag

__all__ = ["SKEWED", "chances", "draw_experts", "expected_tiles", "experts_hit", "loads", "row_tiles"]

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


@functools.lru_cache(maxsize=64)
def chances(experts: int, chosen: int, *, skewed: bool) -> tuple[float, ...]:
    """Return each expert's chance to be among the `chosen` ones of a token: equal, or as 1, 1/2, 1/3, ... if `skewed`.

    No chance is more than 1: what a frequent expert would have beyond that is shared by the others.
    """
    shares = [1 / rank if skewed else 1.0 for rank in range(1, experts + 1)]
    certain = 0
    while certain < min(chosen, experts) and shares[certain] * (chosen - certain) > sum(shares[certain:]) * (1 + 1e-9):
        certain += 1
    rest = shares[certain:]
    return (1.0,) * certain + tuple(min(1.0, share * (chosen - certain) / sum(rest)) for share in rest)


def experts_hit(tokens: int, experts: int, chosen: int, *, skewed: bool) -> float:
    """Return the expected number of experts that any of the tokens chooses."""
    return sum(1 - (1 - chance) ** tokens for chance in chances(experts, chosen, skewed=skewed))


@functools.lru_cache(maxsize=256)
def expected_tiles(tokens: int, experts: int, chosen: int, block: int, *, skewed: bool) -> float:
    """Return the expected number of tiles of `block` rows, each of one expert, that the tokens' rows fill."""
    alike = Counter(chances(experts, chosen, skewed=skewed))
    return sum(count * _filled(tokens, chance, block) for chance, count in alike.items())


def _filled(tokens: int, chance: float, block: int) -> float:
    """Return the expected number of tiles of an expert that each token chooses with this chance: a sum over the numbers
    of tokens that are within eight standard deviations of the mean."""
    if chance >= 1:
        return math.ceil(tokens / block)
    mean, away = tokens * chance, 8 * math.sqrt(tokens * chance * (1 - chance)) + 8
    choose = math.lgamma(tokens + 1)
    total = 0.0
    for rows in range(max(1, math.floor(mean - away)), min(tokens, math.ceil(mean + away)) + 1):
        ways = choose - math.lgamma(rows + 1) - math.lgamma(tokens - rows + 1)
        total += math.ceil(rows / block) * math.exp(
            ways + rows * math.log(chance) + (tokens - rows) * math.log1p(-chance)
        )
    return total


def draw_experts(tokens: int, experts: int, chosen: int, generator: Any, *, skewed: bool) -> Any:
    """Return the numbers of the `chosen` different experts of each token, [tokens, chosen] in int64.

    Each token lines up the experts in an order of its own, each as long as its chance, and takes those that marks at
    distances of 1 hit, the first of them anywhere below 1: every expert then has exactly its chance (systematic
    sampling; Madow, "On the Theory of Systematic Sampling, II", 1949).
    """
    import torch

    device = generator.device
    weights = torch.tensor(chances(experts, chosen, skewed=skewed), dtype=torch.float64, device=device)
    weights = weights[torch.randperm(experts, generator=generator, device=device)]
    order = torch.rand(tokens, experts, generator=generator, device=device).argsort(-1)
    marks = torch.rand(tokens, 1, generator=generator, device=device, dtype=torch.float64)
    ends = weights[order].cumsum(-1)
    passed = (ends - marks).floor()
    hit = passed.diff(dim=-1, prepend=(-marks).floor())
    return order.gather(1, hit.topk(chosen).indices)
