"""Loops in a steady state: once two periods advance every clock and counter alike, the middle is added at once."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.tuner.devices.ascend_model.clock.core import Core
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, View

__all__ = ["iterations"]

_PERIOD = 2  # double buffering alternates; a period of one is a period of two as well
_SAME = 1e-6
_NUMBER = (int, float, np.floating)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Clocks (with pending flags), counters and loop-carried values after an iteration, or their change per period."""

    times: Sequence[float]
    counts: Sequence[float]
    carried: Sequence[Any]


_Values = list[Any]


def iterations(values: _Values, core: Core, indices: range, carried: Sequence[int]) -> Iterator[int]:
    """Yield the indices of the iterations to run; between them, add periods of the steady state at once.

    Skipping assumes that sizes, once steady, change only towards a loop's end (tails): the period after a skip must
    do the same work as the skipped ones. If it does not, half as many periods are skipped instead.
    """
    history: list[_Snapshot] = []
    at = 0
    while at < len(indices):
        if steady := _steady(history):
            left = (len(indices) - at) // _PERIOD - 2
            periods = min(left, _until_crossing(core.times(), steady.times))
            while periods > 0 and not (yield from _skip(values, core, indices[at:], carried, steady, periods)):
                periods //= 2
            if periods > 0:
                at += (periods + 1) * _PERIOD
                history.clear()
                continue
        yield indices[at]
        at += 1
        history.append(_Snapshot(core.times(), core.counts(), [values[n] for n in carried]))
        del history[: -2 * _PERIOD - 1]


def _skip(
    values: _Values, core: Core, indices: range, carried: Sequence[int], steady: _Snapshot, periods: int
) -> Generator[int, None, bool]:
    """Add `periods` at once and run the one after them. If that one did other work, undo both and return False."""
    before, kept = core.copy(), [values[n] for n in carried]
    core.advance(steady.times, steady.counts, periods)
    for number, change in zip(carried, steady.carried, strict=True):
        values[number] = _moved(values[number], change, periods)
    counts = core.counts()
    yield from indices[periods * _PERIOD : (periods + 1) * _PERIOD]
    work = slice(len(core.busy) + 1, None)  # after the cycles of pipes and odd rows
    change = [after - earlier for earlier, after in zip(counts[work], core.counts()[work], strict=True)]
    if all(abs(a - b) <= _SAME for a, b in zip(change, steady.counts[work], strict=True)):
        return True
    core.become(before)
    for number, value in zip(carried, kept, strict=True):
        values[number] = value
    return False


def _steady(history: Sequence[_Snapshot]) -> _Snapshot | None:
    """Return the change of clocks, counters and carried values per period, or None if the last two periods differ."""
    if len(history) < 2 * _PERIOD + 1:
        return None
    first, middle, last = history[-1 - 2 * _PERIOD], history[-1 - _PERIOD], history[-1]
    if not len(first.times) == len(middle.times) == len(last.times):
        return None
    times, counts = (
        _same_step(first.times, middle.times, last.times),
        _same_step(first.counts, middle.counts, last.counts),
    )
    moves = [_change(b, c) for b, c in zip(middle.carried, last.carried, strict=True)]
    if times is None or counts is None or None in moves:
        return None
    if moves != [_change(a, b) for a, b in zip(first.carried, middle.carried, strict=True)]:
        return None
    return _Snapshot(times, counts, moves)


def _same_step(first: Sequence[float], middle: Sequence[float], last: Sequence[float]) -> list[float] | None:
    steps = [(b - a, c - b, c) for a, b, c in zip(first, middle, last, strict=True)]
    return (
        [new for _, new, _ in steps] if all(abs(new - old) <= _SAME * (1 + abs(c)) for old, new, c in steps) else None
    )


def _change(old: Any, new: Any) -> Any:
    """Return the change of a carried value: a number's difference or a view's offset; None for anything else."""
    if isinstance(old, View) and isinstance(new, View):
        same = (old.base, old.sizes, old.strides) == (new.base, new.sizes, new.strides)
        return _change(old.offset, new.offset) if same else None
    if old is UNKNOWN and new is UNKNOWN:
        return 0
    if isinstance(old, _NUMBER) and isinstance(new, _NUMBER):
        return new - old
    return None


def _moved(value: Any, change: Any, periods: int) -> Any:
    if isinstance(value, View):
        return View(value.base, _moved(value.offset, change, periods), value.sizes, value.strides, value.item_bits)
    return UNKNOWN if value is UNKNOWN else value + change * periods


def _until_crossing(times: Sequence[float], rates: Sequence[float]) -> int:
    """Return the periods for which no clock that is behind and faster comes near one that is ahead and slower."""
    limit = 1 << 60
    margin = max(rates)
    for ahead, slow in zip(times, rates, strict=True):
        for behind, fast in zip(times, rates, strict=True):
            if fast > slow + _SAME and behind < ahead:
                limit = min(limit, max(0, int((ahead - behind - margin) / (fast - slow))))
    return limit
