"""The smallest set of candidates that together cover everything."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

__all__ = ["smallest_set_cover"]

_STEP_LIMIT = 20_000
"""Limit of the exact search, at a microsecond or two per step. Beyond it, the greedy cover is returned."""


def smallest_set_cover(masks: Sequence[int]) -> tuple[list[int], bool]:
    """Return the indexes of the fewest masks that together have all bits, and whether they are proven to be the fewest.

    Earlier masks are preferred. Without proof the cover is the greedy one, larger by at most a logarithmic factor.
    """
    everything = reduce(or_, masks, 0)
    best = _greedy(masks, everything)
    first = {mask: index for index, mask in reversed(list(enumerate(masks)))}
    useful = sorted(p for m, p in first.items() if not any(m != other and m | other == other for other in first))
    search = _Search(masks, useful, everything)
    for size in range(1, len(best)):
        found = search.cover(everything, size)
        if search.steps > _STEP_LIMIT:
            return best, False
        if found is not None:
            return found, True
    return best, True


def _greedy(masks: Sequence[int], everything: int) -> list[int]:
    chosen, missing = [], everything
    while missing:
        index = max(range(len(masks)), key=lambda i: (masks[i] & missing).bit_count())
        chosen.append(index)
        missing &= ~masks[index]
    return chosen


class _Search:
    """A depth-first search that always covers next the bit that the fewest masks cover."""

    def __init__(self, masks: Sequence[int], useful: Sequence[int], everything: int) -> None:
        self.masks, self.useful, self.steps = masks, useful, 0
        bits = (1 << bit for bit in range(everything.bit_length()) if everything >> bit & 1)
        covering = [(bit, [index for index in useful if masks[index] & bit]) for bit in bits]
        self._rarest_first = sorted(covering, key=lambda pair: len(pair[1]))

    def cover(self, missing: int, size: int) -> list[int] | None:
        self.steps += 1
        if not missing:
            return []
        if self.steps > _STEP_LIMIT:
            return None
        largest = max((self.masks[index] & missing).bit_count() for index in self.useful)
        if largest * size < missing.bit_count():
            return None
        for index in self._fewest(missing):
            rest = self.cover(missing & ~self.masks[index], size - 1)
            if rest is not None:
                return [index, *rest]
        return None

    def _fewest(self, missing: int) -> list[int]:
        return next(indexes for bit, indexes in self._rarest_first if missing & bit)
