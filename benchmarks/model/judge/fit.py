"""The fitted figures determined by published times: least squares in logarithms, with each range as a prior.

Leaving a kernel out is a fit of its own on all other kernels' times. All fits start from the middles of the figures'
ranges, never from the shipped values, and share one table of slopes there.
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

_ROUNDS = 30
"""Rounds of reweighting; the solution moves by less than a thousandth after some ten."""

_FEWEST = 0.02
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
    """Return the changes of the figures' logarithms, from the middles of their ranges, that fit the kept rows best.

    Each kernel counts as much as any other, however many times of it were published. Errors beyond `_NOISE` count in
    proportion, not squared (Huber's weights): a kernel that the model gets wrong for another reason decides little.
    """
    table = {**FIGURES, **REPEAT_CYCLES}
    priors = np.array([1 / _spread(table[name]) for name in model.names])
    use = np.array(kept, dtype=bool)
    slopes, published = model.slopes[use], model.published[use]
    start = model.logs[use] - slopes @ around
    solution: _Vector = around
    for _ in range(_ROUNDS):
        off = published - start - slopes @ solution
        robust = np.minimum(1.0, _NOISE / np.maximum(np.abs(off), 1e-9))
        weight = model.weights[use] ** 2 * robust / _NOISE**2
        curvature = slopes.T @ (slopes * weight[:, None]) + np.diag(priors**2)
        solution = np.linalg.solve(curvature, slopes.T @ (weight * (published - start)))
    return solution


def with_changes(names: Sequence[str], changes: _Vector) -> Costs:
    """Return the shipped costs with these figures' logarithms changed."""
    return costs(instead=changed(names, changes))


def changed(names: Sequence[str], changes: _Vector) -> Mapping[str, Figure]:
    """Return figures at these changes of their logarithms from the middles of their ranges. The shipped values are
    fitted to all published times, so a fit without one kernel's may not start from them."""
    table = {**FIGURES, **REPEAT_CYCLES}
    return {
        name: replace(table[name], value=_middle(table[name]) * float(np.exp(change)))
        for name, change in zip(names, changes, strict=True)
    }


def _middle(figure: Figure) -> float:
    return float((figure.low * figure.high) ** 0.5)


def _spread(figure: Figure) -> float:
    return max(_FEWEST, float(np.log(figure.high / figure.low)) / 2)
