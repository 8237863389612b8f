"""The smallest set of candidates that together cover everything."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

__all__ = ["smallest_set_cover"]

_MOST_STEPS = 20_000
"""Steps of the exact search, about a microsecond or two each; beyond them the greedy cover stands."""


def smallest_set_cover(masks: Sequence[int]) -> tuple[list[int], bool]:
    """Places of the fewest masks whose bits together are all bits there are, and whether there is proof of that.

    Earlier masks are preferred. Without the proof the cover is the greedy one, which is at most a logarithm larger.
    """
    everything = reduce(or_, masks, 0)
    best = _greedy(masks, everything)
    first = {mask: place for place, mask in reversed(list(enumerate(masks)))}
    useful = sorted(p for m, p in first.items() if not any(m != other and m | other == other for other in first))
    search = _Search(masks, useful, everything)
    for size in range(1, len(best)):
        found = search.cover(everything, size)
        if search.steps > _MOST_STEPS:
            return best, False
        if found is not None:
            return found, True
    return best, True


def _greedy(masks: Sequence[int], everything: int) -> list[int]:
    chosen, missing = [], everything
    while missing:
        place = max(range(len(masks)), key=lambda p: (masks[p] & missing).bit_count())
        chosen.append(place)
        missing &= ~masks[place]
    return chosen


class _Search:
    """Depth first: what the fewest candidates cover is covered next."""

    def __init__(self, masks: Sequence[int], useful: Sequence[int], everything: int) -> None:
        self.masks, self.useful, self.steps = masks, useful, 0
        bits = (1 << bit for bit in range(everything.bit_length()) if everything >> bit & 1)
        covering = [(bit, [place for place in useful if masks[place] & bit]) for bit in bits]
        self._rarest_first = sorted(covering, key=lambda pair: len(pair[1]))

    def cover(self, missing: int, size: int) -> list[int] | None:
        self.steps += 1
        if not missing:
            return []
        if size == 0 or self.steps > _MOST_STEPS:
            return None
        largest = max((self.masks[place] & missing).bit_count() for place in self.useful)
        if largest * size < missing.bit_count():
            return None
        for place in self._fewest(missing):
            rest = self.cover(missing & ~self.masks[place], size - 1)
            if rest is not None:
                return [place, *rest]
        return None

    def _fewest(self, missing: int) -> list[int]:
        return next(places for bit, places in self._rarest_first if missing & bit)
