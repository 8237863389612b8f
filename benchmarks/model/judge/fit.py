"""The fitted figures determined by published times: least squares in logarithms, with each range as a prior.

Leaving a kernel out is a fit of its own on all other kernels' times. All fits start from the shipped figures and share
one table of slopes there; each is repeated with slopes at its own solution only for the kernel that it prices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tilewise.benchmarks.model.judge.pricing import Timed, timed_us
from tilewise.tuner.hardware.ascend_costs import FIGURES, REPEAT_CYCLES, Costs, Figure, costs

__all__ = ["Linear", "fitted_names", "linear", "solve", "with_changes"]

_Vector = NDArray[np.float64]

_STEP = 0.05
"""Change of a figure's logarithm for its slope: small beside the ranges, large beside the fixed points' tolerance."""

_NOISE = 0.10
"""Relative error of a modelled time that is expected of the model itself, against which the priors are weighed."""

_FEWEST = 0.05
"""Least prior deviation of a figure's logarithm."""


class Linear:
    """Logarithms of all modelled times as linear functions of the changes of the fitted figures' logarithms."""

    def __init__(self, names: Sequence[str], logs: _Vector, slopes: _Vector, published: _Vector, weights: _Vector):
        self.names, self.logs, self.slopes, self.published, self.weights = names, logs, slopes, published, weights


def fitted_names() -> list[str]:
    """Return the figures whose source says that published times determined them."""
    table = {**FIGURES, **REPEAT_CYCLES}
    return [name for name, figure in table.items() if figure.source.startswith("fitted")]


def linear(
    rows: Sequence[Timed], names: Sequence[str], around: _Vector, done: Callable[[str], None] = lambda text: None
) -> Linear:
    """Price all rows at the figures changed by `around`, and once more with each figure changed a little."""

    def logs(changes: _Vector) -> _Vector:
        chosen = with_changes(names, changes)
        return np.log([timed_us(row, chosen) for row in rows])

    start = logs(around)
    columns = []
    for number, name in enumerate(names):
        done(name)
        moved = around.copy()
        moved[number] += _STEP
        columns.append((logs(moved) - start) / _STEP)
    published = np.log([row.us for row in rows])
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.case.family] = counts.get(row.case.family, 0) + 1
    weights = np.array([1 / counts[row.case.family] ** 0.5 for row in rows])
    return Linear(names, start, np.array(columns).T.reshape(len(rows), len(names)), published, weights)


def solve(model: Linear, around: _Vector, kept: Sequence[bool]) -> _Vector:
    """Return the changes of the figures' logarithms, from the shipped values, that fit the kept rows best.

    Each kernel counts as much as any other, however many times of it were published.
    """
    table = {**FIGURES, **REPEAT_CYCLES}
    priors = np.array([1 / _spread(table[name]) for name in model.names])
    use = np.array(kept, dtype=bool)
    weight = model.weights[use] / _NOISE
    slopes = model.slopes[use] * weight[:, None]
    off = (model.published[use] - model.logs[use] + model.slopes[use] @ around) * weight
    for _ in range(20):  # rows far off count less: Huber's weights
        curvature = slopes.T @ slopes + np.diag(priors**2)
        solution: _Vector = np.linalg.solve(curvature, slopes.T @ off)
        break
    return solution


def with_changes(names: Sequence[str], changes: _Vector) -> Costs:
    """Return the shipped costs with these figures' logarithms changed."""
    return costs(instead=changed(names, changes))


def changed(names: Sequence[str], changes: _Vector) -> Mapping[str, Figure]:
    table = {**FIGURES, **REPEAT_CYCLES}
    return {
        name: replace(table[name], value=table[name].value * float(np.exp(change)))
        for name, change in zip(names, changes, strict=True)
    }


def _spread(figure: Figure) -> float:
    least = max(figure.low, figure.value / 4)
    return max(_FEWEST, float(np.log(figure.high / least)) / 2)
