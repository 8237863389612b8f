"""The end of a tuning: leaders timed again in turns, and which of them wins, or that nobody can tell.

In each round every contestant is timed once, so whatever changes from round to round changes for all alike, and what is
compared are ratios within a round. Contestants that are clearly behind leave early. Who is not clearly behind the
fastest at the end is tied with it, and a tie is settled by a rule that has nothing to do with luck.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewise.tuner.statistics import chances_of_being_fastest, median_interval, ratio_interval

__all__ = ["ROUNDS", "TIE", "Standing", "hold"]

ROUNDS = (20, 40, 80, 160, 320)
"""Numbers of rounds after which the contestants are compared."""

TIE = 0.005
"""A difference of the medians of less than this is a tie however sure it is: another process, another day and another
card differ by more."""

ERROR = 0.05
"""The chance that anybody is wrongly held to be behind, over all pairs and looks together."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one contestant came out, in the order in which they entered.

    `ratio` is its time by that of the fastest, round by round, between `ratio_low` and `ratio_high` (all 1 for the
    fastest itself). `tied` are those that are not clearly behind the fastest, itself among them where there is another.
    `chance` is how likely it is that none of the others is faster.
    """

    times_us: tuple[float, ...]
    ratio: float
    ratio_low: float
    ratio_high: float
    behind: bool
    tied: bool
    chance: float


class _Rival:
    def __init__(self) -> None:
        self.times: list[float] = []
        self.behind = False
        self.ratio = self.low = self.high = 1.0

    def compare(self, fastest: _Rival, error: float) -> None:
        if self is fastest:
            self.ratio = self.low = self.high = 1.0
            return
        interval = ratio_interval(self.times, fastest.times, error)
        self.ratio, self.low, self.high = interval.median, interval.low, interval.high
        self.behind = self.low > 1 and self.ratio > 1 + TIE

    @property
    def decided(self) -> bool:
        return self.behind or self.high <= 1 + TIE


def hold(
    count: int, time_rounds: Callable[[Sequence[int], int], Sequence[Sequence[float]]], *, seconds: float = 30.0
) -> list[Standing]:
    """The standings of `count` contestants.

    `time_rounds(contestants, rounds)` times each of these (numbers from 0) once a round and returns, in their order,
    the microseconds by round. It may return fewer for one that failed, which is then out of the contest. After
    `seconds` of wall time no further look is taken; who is not clearly behind by then is tied.
    """
    rivals = [_Rival() for _ in range(count)]
    error = ERROR / max(1, count * (count - 1) // 2) / len(ROUNDS)  # any two may turn out to be compared
    end = time.monotonic() + seconds
    for look in ROUNDS:
        running = [number for number, rival in enumerate(rivals) if not rival.behind]
        done = len(rivals[running[0]].times)
        for number, times in zip(running, time_rounds(running, look - done), strict=True):
            rivals[number].times += times
            rivals[number].behind = len(rivals[number].times) < look  # it failed
        running = [number for number in running if not rivals[number].behind]
        if not running:
            break
        fastest = min((rivals[number] for number in running), key=lambda rival: median_interval(rival.times).median)
        for number in running:
            rivals[number].compare(fastest, error)
        if all(rivals[number].decided for number in running) or time.monotonic() >= end:
            break
    return _standings(rivals)


def _standings(rivals: Sequence[_Rival]) -> list[Standing]:
    """The contestants that were there to the end share the chance of being the fastest."""
    longest = max(len(rival.times) for rival in rivals)
    last = [n for n, rival in enumerate(rivals) if len(rival.times) == longest and longest]
    chances = dict(zip(last, _chances([rivals[n].times for n in last]), strict=True))
    tied = sum(not rival.behind for rival in rivals)
    return [
        Standing(
            times_us=tuple(rival.times),
            ratio=rival.ratio,
            ratio_low=rival.low,
            ratio_high=rival.high,
            behind=rival.behind,
            tied=not rival.behind and tied > 1,
            chance=chances.get(number, 0.0),
        )
        for number, rival in enumerate(rivals)
    ]


def _chances(times: Sequence[Sequence[float]]) -> list[float]:
    return [float(c) for c in chances_of_being_fastest(np.array(times).T)] if times else []
