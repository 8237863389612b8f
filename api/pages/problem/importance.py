"""Which parameters matter, from the trials themselves: nothing is fitted, and nothing is predicted.

Two figures answer two questions. `share` is the part of the variance of the logarithms of all times that the averages
of the parameter's values account for (the correlation ratio, eta squared, less what as many random groups would account
for: epsilon squared, Kelley 1935). Where a search chose the trials, it also reflects that choice. `alone` is the effect
of the parameter if nothing else changes: of trials that differ in it only, the slowest divided by the fastest, as the
median over all such groups.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tilewise.api.pages.problem.landscape import Landscape, Parameter

__all__ = ["Importance", "Option", "importances"]


@dataclass(frozen=True, slots=True)
class Option:
    """A trial with another value of a parameter than the winner's. `ratio` is its time divided by the winner's; it is
    None if the trial failed, with this `status`."""

    value: str
    trial: int
    ratio: float | None
    status: str


@dataclass(frozen=True, slots=True)
class Importance:
    """One parameter: its part of the differences, the effect of changing it alone, and what leaving the winner's value
    costs. `alone` is None if no two trials that ran differ in it only, `value` where there is no winner. `rival` is the
    fastest trial with another value of it, whatever else differs."""

    name: str
    share: float
    alone: float | None
    groups: int
    value: str | None
    options: Sequence[Option]
    rival: Option | None


def importances(landscape: Landscape, winner: int | None) -> list[Importance]:
    """Return the parameters with more than one value, by their share, the largest first."""
    varied = landscape.varied
    places = _places(varied)
    configs = _config_numbers(varied, places)
    by_time = sorted(landscape.timed(), key=lambda pair: pair[1])
    ran, logs = [trial for trial, _ in by_time], [math.log(time_us) for _, time_us in by_time]
    found = [
        _importance(landscape, parameter, _others(parameter, place, configs), ran, logs, winner)
        for parameter, place in zip(varied, places, strict=True)
    ]
    return sorted(found, key=lambda each: -each.share)


def _importance(
    landscape: Landscape,
    parameter: Parameter,
    others: Sequence[int],
    ran: Sequence[int],
    logs: Sequence[float],
    winner: int | None,
) -> Importance:
    """Return a parameter's figures. `ran` are the trials that ran, the fastest first, and `logs` their times."""
    groups = [others[trial] for trial in ran]
    slowest = dict(zip(groups, logs, strict=True))  # of each group the last one is kept
    fastest = dict(zip(reversed(groups), reversed(logs), strict=True))
    spans = [slowest[group] - fastest[group] for group, count in Counter(groups).items() if count > 1]
    return Importance(
        name=parameter.name,
        share=_share([parameter.codes[trial] for trial in ran], logs),
        alone=math.exp(statistics.median(spans)) if spans else None,
        groups=len(spans),
        value=None if winner is None else str(landscape.config(winner).get(parameter.name, "-")),
        options=[] if winner is None else _options(landscape, parameter, others, winner),
        rival=None if winner is None else _rival(landscape, parameter, ran, winner),
    )


def _others(parameter: Parameter, place: int, configs: Sequence[int]) -> list[int]:
    """Return a number for each config that is the same for all that differ in this parameter only."""
    return [number - place * code for number, code in zip(configs, parameter.codes, strict=True)]


def _options(landscape: Landscape, parameter: Parameter, others: Sequence[int], winner: int) -> list[Option]:
    """Return the trials that differ from the winner in this parameter only, in the order of its values."""
    best_us = landscape.times_us[winner]
    near = [n for n, other in enumerate(others) if other == others[winner] and n != winner]
    return [_option(landscape, parameter, n, best_us) for n in sorted(near, key=lambda n: parameter.codes[n])]


def _rival(landscape: Landscape, parameter: Parameter, ran: Sequence[int], winner: int) -> Option | None:
    """Return the fastest trial with another value of the parameter than the winner's."""
    other = next((n for n in ran if parameter.codes[n] != parameter.codes[winner]), None)
    return None if other is None else _option(landscape, parameter, other, landscape.times_us[winner])


def _option(landscape: Landscape, parameter: Parameter, trial: int, best_us: float | None) -> Option:
    time_us = landscape.times_us[trial]
    return Option(
        value="-" if parameter.codes[trial] < 0 else str(parameter.values[parameter.codes[trial]]),
        trial=trial,
        ratio=time_us / best_us if time_us is not None and best_us else None,
        status=landscape.statuses[trial],
    )


def _share(codes: Sequence[int], logs: Sequence[float]) -> float:
    """Return epsilon squared, from 0 to 1."""
    counts, number = Counter(codes), len(logs)
    if number <= len(counts):
        return 0.0
    mean = statistics.fmean(logs)
    sums = dict.fromkeys(counts, 0.0)
    for code, log in zip(codes, logs, strict=True):
        sums[code] += log - mean
    whole = sum((log - mean) ** 2 for log in logs)
    if whole <= 1e-12 * number:  # all times are the same
        return 0.0
    between = sum(sums[code] ** 2 / count for code, count in counts.items())
    unexplained = (whole - between) / (number - len(counts))
    return max(0.0, (between - (len(counts) - 1) * unexplained) / whole)


def _places(parameters: Sequence[Parameter]) -> list[int]:
    """Return the place value of each parameter in a number that identifies a config; none counts as one more."""
    places, place = [], 1
    for parameter in parameters:
        places.append(place)
        place *= len(parameter.values) + 1
    return places


def _config_numbers(parameters: Sequence[Parameter], places: Sequence[int]) -> list[int]:
    numbers = [0] * (len(parameters[0].codes) if parameters else 0)
    for parameter, place in zip(parameters, places, strict=True):
        numbers = [number + place * code for number, code in zip(numbers, parameter.codes, strict=True)]
    return numbers
