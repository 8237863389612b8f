"""The surrogate of the guided search: a Gaussian process over a discrete space.

The correlation of two configs is a product over the parameters. A parameter's factor depends only on its two values, so
it is a small table, and covariances are looked up rather than computed. The factor of a column of distances is
`floor + (1 - floor) * exp(-rate * distance^2)`: if the floor is high, the parameter matters little however far apart
its values are (an ANOVA kernel: products of "alike or not" in any number of parameters). Rates, floors, noise and scale
are fitted under weak priors (maximum a posteriori, by Adam).

The equations are those of Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006: prediction by
algorithm 2.1, the gradient of the marginal likelihood by (5.9).

"Chosen by hand" below means: while searches were replayed on the six spaces of other projects (docs/search.md), and
never ablated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.tuner.space.search_space import ValueIndices

__all__ = ["Array", "Column", "GaussianProcess", "Posterior", "columns"]

Array = NDArray[np.float64]
_WIDE = 4.0
"""Values that span this ratio or more are compared by their logarithms. Chosen by hand."""

_RATE, _FLOOR, _NOISE, _SCALE = (0.0, 1.0), (0.0, 1.5), (-4.0, 1.0), (0.0, 1.0)
"""Mean and standard deviation of the priors on the rate's logarithm, the floor's logit, and the logarithms of the noise
and scale variances, in units of the data's variance. Chosen by hand."""

_SELDOM = 2.0
"""Prior mean of the floor's logit for a rugged column: differences beyond the order of the values seldom matter. Chosen
by hand."""

_FEW = 3
"""Up to this many values differ from one another anyway, and need no rugged column. Chosen by hand."""

_STEP, _STEPS, _FORGET, _FORGET_SQUARES = 0.15, 12, 0.8, 0.95
"""Adam's step, number of steps and decay rates. Chosen by hand, for the time of a fit."""

_LIMIT = 8.0
"""Bound on each fitted parameter, so that its exponential stays finite. Chosen by hand."""

_JITTER = 1e-8
"""Added to the diagonal, so that rounding leaves the matrix positive definite. Chosen by hand."""


@dataclass(frozen=True)
class Column:
    """One way in which a parameter's values differ: their squared distances, as a square table, and the prior mean of
    the floor's logit."""

    parameter: int
    squares: Array
    floor: float = _FLOOR[0]


def columns(domains: Sequence[tuple[Sequence[Any], bool]], *, rugged: bool = False) -> list[Column]:
    """Return the columns of a space's parameters, given the values of each and whether they are ordered numbers.

    Numbers differ by their order, or by logarithm if they span a wide range. They also differ by how often two divides
    them, if that adds information: hardware prefers 128 to 120. Other values are either equal or not. In a `rugged`
    space numbers have such a column too: one may divide a dimension while both its neighbours leave tails.
    """
    found = []
    for parameter, (values, ordered) in enumerate(domains):
        if len(values) < 2:
            continue
        if not ordered:
            found.append(Column(parameter, 1.0 - np.eye(len(values))))
            continue
        scales = [_scale(values)]
        if (twos := _twos(values)) is not None:
            scales.append(twos)
        found += [Column(parameter, (scale[:, None] - scale[None, :]) ** 2) for scale in scales]
        if rugged and len(values) > _FEW:
            found.append(Column(parameter, 1.0 - np.eye(len(values)), _SELDOM))
    return found


def _scale(values: Sequence[float]) -> Array:
    """Return the values on a scale from 0 to 1."""
    numbers = np.array(values, dtype=float)
    wide = numbers.min() > 0 and numbers.max() >= _WIDE * numbers.min()
    scale = np.log(numbers / numbers[0]) if wide else np.arange(len(numbers), dtype=float)
    return np.asarray(scale / scale[-1])


def _twos(values: Sequence[float]) -> Array | None:
    """Return how often two divides each value, on a scale from 0 to 1; None if that adds nothing to the values."""
    if not all(isinstance(v, int) and v > 0 for v in values):
        return None
    twos = np.array([(int(v) & -int(v)).bit_length() - 1 for v in values], dtype=float)
    powers_only = all(int(v).bit_count() == 1 for v in values)
    return None if powers_only or len(set(twos)) < 3 else np.asarray(twos / twos.max())


class GaussianProcess:
    """A Gaussian process over configs, which are given by config index: rows of `value_indices`."""

    def __init__(self, value_indices: ValueIndices, columns: Sequence[Column]) -> None:
        self._value_indices, self._columns = value_indices, columns
        count = len(columns)
        means = [_RATE[0]] * count + [column.floor for column in columns] + [_NOISE[0], _SCALE[0]]
        widths = [_RATE[1]] * count + [_FLOOR[1]] * count + [_NOISE[1], _SCALE[1]]
        self._mean, self._width = np.array(means), np.array(widths)
        self._free = self._mean.copy()
        self._slope, self._square, self._time = np.zeros(2 * count + 2), np.zeros(2 * count + 2), 0

    def fit(self, tried: NDArray[np.int_], values: Array, steps: int = _STEPS) -> None:
        """Move rates, floors, noise and scale towards the most probable for these values, of mean 0 and variance 1."""
        value_indices = self._value_indices[tried]
        one_hot = [np.eye(len(column.squares))[value_indices[:, column.parameter]] for column in self._columns]
        for _ in range(steps):
            gradient = self._gradient(value_indices, one_hot, values) - (self._free - self._mean) / self._width**2
            self._time += 1
            self._slope = _FORGET * self._slope + (1 - _FORGET) * gradient
            self._square = _FORGET_SQUARES * self._square + (1 - _FORGET_SQUARES) * gradient**2
            slope = self._slope / (1 - _FORGET**self._time)
            square = self._square / (1 - _FORGET_SQUARES**self._time)
            self._free = np.clip(self._free + _STEP * slope / (np.sqrt(square) + 1e-8), -_LIMIT, _LIMIT)

    def _gradient(self, value_indices: ValueIndices, one_hot: Sequence[Array], values: Array) -> Array:
        count = len(self._columns)
        smooth = self._scale * self._correlation(value_indices, value_indices)
        inverse = np.linalg.inv(smooth + (self.noise + _JITTER) * np.eye(len(values)))
        weights = inverse @ values
        pull = np.outer(weights, weights) - inverse
        shares = pull * smooth
        gradient = np.empty(2 * count + 2)
        for index, column in enumerate(self._columns):
            rate, floor = self._rate(index), self._floor(index)
            alike = np.exp(-rate * column.squares)
            factor = floor + (1 - floor) * alike
            by_value = one_hot[index].T @ shares @ one_hot[index] / factor
            gradient[index] = -0.5 * (by_value * alike * column.squares).sum() * (1 - floor) * rate
            gradient[count + index] = 0.5 * (by_value * (1 - alike)).sum() * floor * (1 - floor)
        gradient[-2] = 0.5 * self.noise * np.trace(pull)
        gradient[-1] = 0.5 * shares.sum()
        return gradient

    def evidence(self, tried: NDArray[np.int_], values: Array) -> float:
        """Return the log marginal likelihood of the values."""
        factor = self._factor(tried)
        whitened = np.linalg.solve(factor, values)
        return float(
            -0.5 * whitened @ whitened - np.log(np.diag(factor)).sum() - 0.5 * len(values) * math.log(2 * math.pi)
        )

    def posterior(self, tried: NDArray[np.int_], values: Array, pool: NDArray[np.int_]) -> Posterior:
        factor = self._factor(tried)
        cross: Array = np.asarray(np.linalg.solve(factor, self.covariance(tried, pool)))
        mean = cross.T @ np.linalg.solve(factor, values)
        variance = np.asarray(self._scale - np.einsum("ij,ij->j", cross, cross))
        return Posterior(self, pool, cross, np.asarray(mean), np.maximum(variance, _JITTER))

    def covariance(self, left: NDArray[np.int_], right: NDArray[np.int_]) -> Array:
        return self._scale * self._correlation(self._value_indices[left], self._value_indices[right])

    @property
    def noise(self) -> float:
        """Return the variance of repeats of a config, plus the variance that no correlation explains."""
        return math.exp(self._free[-2])

    @property
    def _scale(self) -> float:
        return math.exp(self._free[-1])

    def _factor(self, tried: NDArray[np.int_]) -> Array:
        covariance = self.covariance(tried, tried)
        return np.asarray(np.linalg.cholesky(covariance + (self.noise + _JITTER) * np.eye(len(tried))))

    def _correlation(self, left: ValueIndices, right: ValueIndices) -> Array:
        """Return the correlations. A parameter's columns make one table, which is indexed by `right` (the longer side)
        first, so that whole rows are copied for `left`."""
        product = np.ones((len(left), len(right)))
        tables: dict[int, Array] = {}
        for index, column in enumerate(self._columns):
            floor = self._floor(index)
            factor = floor + (1 - floor) * np.exp(-self._rate(index) * column.squares)
            tables[column.parameter] = tables.get(column.parameter, 1.0) * factor
        for parameter, table in tables.items():
            product *= table[:, right[:, parameter]][left[:, parameter]]
        return product

    def _rate(self, index: int) -> float:
        return math.exp(self._free[index])

    def _floor(self, index: int) -> float:
        return 1 / (1 + math.exp(-self._free[len(self._columns) + index]))


@dataclass
class Posterior:
    """The posterior of the configs `pool`: one `mean` and one `variance` per config."""

    surrogate: GaussianProcess
    pool: NDArray[np.int_]
    _cross: Array
    mean: Array
    variance: Array

    def assume(self, place: int) -> None:
        """Assume that config `place` of the pool turns out as predicted: means stay, variances around it shrink."""
        row = self.surrogate.covariance(self.pool[place : place + 1], self.pool)[0]
        row = (row - self._cross[:, place] @ self._cross) / math.sqrt(self.variance[place] + self.surrogate.noise)
        self._cross = np.vstack([self._cross, row])
        self.variance = np.maximum(self.variance - row**2, _JITTER)

    def draw(self, places: NDArray[np.int_], count: int, seed: int) -> Array:
        """Draw jointly from the posterior of some of the pool, one row per draw."""
        indices, cross = self.pool[places], self._cross[:, places]
        covariance = self.surrogate.covariance(indices, indices) - cross.T @ cross
        values, vectors = np.linalg.eigh(covariance)
        normal = np.random.default_rng(seed).standard_normal((count, len(places)))
        return np.asarray(self.mean[places] + normal * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)
