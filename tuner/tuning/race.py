"""Compare the fastest candidates of a tuning by timing them in turns.

In each round every candidate is timed once, so whatever changes from round to round changes for all alike, and ratios
within a round are compared. Candidates that are clearly slower drop out early. Those that are not significantly slower
than the fastest at the end are tied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewise.tuner.measure.robust_stats import chances_of_being_fastest, median_interval, ratio_interval

__all__ = ["ROUNDS", "TIE", "RaceResult", "run_race"]

ROUNDS = (20, 40, 80, 160, 320)
"""Numbers of rounds after which the candidates are compared."""

TIE = 0.005
"""Medians that differ by less than this share are tied, however sure the difference is: another process, another day
and another card differ by more."""

ERROR = 0.05
"""The chance that any candidate is wrongly held to be slower, over all pairs and all comparisons together."""


@dataclass(frozen=True, slots=True)
class RaceResult:
    """The result of one candidate.

    `times_us` has one time per round. `ratio` is the candidate's time divided by the fastest one's, round by round,
    between `ratio_low` and `ratio_high` (all 1 for the fastest itself). `behind` marks a candidate that is
    significantly slower, `tied` one that is not, if there are at least two such. `chance` is the probability that no
    other candidate is faster.
    """

    times_us: tuple[float, ...]
    ratio: float
    ratio_low: float
    ratio_high: float
    behind: bool
    tied: bool
    chance: float


class _Candidate:
    def __init__(self) -> None:
        self.times: list[float] = []
        self.behind = False
        self.ratio = self.low = self.high = 1.0

    def compare(self, fastest: _Candidate, error: float) -> None:
        if self is fastest:
            self.ratio = self.low = self.high = 1.0
            return
        interval = ratio_interval(self.times, fastest.times, error)
        self.ratio, self.low, self.high = interval.median, interval.low, interval.high
        self.behind = self.low > 1 and self.ratio > 1 + TIE

    @property
    def decided(self) -> bool:
        return self.behind or self.high <= 1 + TIE


def run_race(
    count: int, time_rounds: Callable[[Sequence[int], int], Sequence[Sequence[float]]], *, seconds: float = 30.0
) -> list[RaceResult]:
    """Race `count` candidates and return their results, in order.

    `time_rounds(candidates, rounds)` times these candidates (indices from 0) once per round and returns, in the same
    order, each one's times in microseconds. A candidate with fewer times has failed and leaves the race. After
    `seconds` of wall time no further comparison is made, and candidates that are not clearly slower by then are tied.
    """
    candidates = [_Candidate() for _ in range(count)]
    error = ERROR / max(1, count * (count - 1) // 2) / len(ROUNDS)  # any two may be compared
    end = time.monotonic() + seconds
    for rounds in ROUNDS:
        running = [index for index, candidate in enumerate(candidates) if not candidate.behind]
        done = len(candidates[running[0]].times)
        for index, times in zip(running, time_rounds(running, rounds - done), strict=True):
            candidates[index].times += times
            candidates[index].behind = len(candidates[index].times) < rounds  # it failed
        running = [index for index in running if not candidates[index].behind]
        if not running:
            break
        fastest = min((candidates[index] for index in running), key=lambda each: median_interval(each.times).median)
        for index in running:
            candidates[index].compare(fastest, error)
        if all(candidates[index].decided for index in running) or time.monotonic() >= end:
            break
    return _results(candidates)


def _results(candidates: Sequence[_Candidate]) -> list[RaceResult]:
    """Return the results; only candidates that ran to the end have a chance of being the fastest."""
    longest = max(len(candidate.times) for candidate in candidates)
    last = [n for n, candidate in enumerate(candidates) if len(candidate.times) == longest and longest]
    chances = dict(zip(last, _chances([candidates[n].times for n in last]), strict=True))
    tied = sum(not candidate.behind for candidate in candidates)
    return [
        RaceResult(
            times_us=tuple(candidate.times),
            ratio=candidate.ratio,
            ratio_low=candidate.low,
            ratio_high=candidate.high,
            behind=candidate.behind,
            tied=not candidate.behind and tied > 1,
            chance=chances.get(index, 0.0),
        )
        for index, candidate in enumerate(candidates)
    ]


def _chances(times: Sequence[Sequence[float]]) -> list[float]:
    return [float(c) for c in chances_of_being_fastest(np.array(times).T)] if times else []
