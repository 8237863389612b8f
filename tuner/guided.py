"""The guided sampler: a prior corrected by what is measured.

Log time is modelled as a Gaussian process over the configs. Its mean is the sum of the prior's log penalties; its
covariance has three parts: a constant (the unknown scale), a linear part over the log penalties (each may weigh more
or less than the prior says), and a smooth part over the parameters (what the prior does not know). Before the first
trial it is the prior; every trial moves it towards the data. Its few scales are those that make the observed times
most likely. Configs are suggested by expected improvement times the chance of being feasible.

The predictive equations are those of Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
algorithm 2.1.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial

from tilewise.tuner.sampler import TableSampler
from tilewise.tuner.space import Space

__all__ = ["GuidedSampler"]

Array = NDArray[np.float64]

_RANDOM_SHARE = 0.05
_OVERFLOW_CHANCE = 0.1
_FEASIBLE_CHANCE = 0.95
_FEASIBLE_REACH = 0.1
"""How far, in coded parameters, a refused config speaks for its neighbours."""


@dataclass(frozen=True, slots=True)
class _Scales:
    smooth: float
    length: float
    weights: float
    noise: float


_GRID = [
    _Scales(smooth, length, weights, noise)
    for smooth, length, weights, noise in itertools.product((0.1, 0.3, 1.0), (0.15, 0.4, 1.0), (0.1, 0.5), (0.02, 0.1))
]
_FIRST = _Scales(smooth=0.3, length=0.4, weights=0.5, noise=0.02)
_CONSTANT = 1.0
_ENOUGH_TO_FIT = 6


class GuidedSampler(TableSampler):
    """`log_penalties` has a row a config and a column a penalty: natural logarithms, 0 where there is none.

    Without a prior (None) only the parameters speak. `likely` says which configs the prior thinks feasible.
    """

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        *,
        log_penalties: Array | None = None,
        likely: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(space)
        self._random = random.Random(seed)
        self._coded = _code(space)
        self._penalties = np.zeros((len(space), 1)) if log_penalties is None else log_penalties
        self._mean = self._penalties.sum(axis=1)
        likely = np.ones(len(space), dtype=bool) if likely is None else likely
        self._chance = np.where(likely, _FEASIBLE_CHANCE, _OVERFLOW_CHANCE)
        self._jitter = np.array([self._random.random() for _ in range(len(space))]) * 1e-6  # settles ties by seed

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        new = np.array([n for n in range(len(self.space)) if self.history.is_new(n)])
        values = self.history.values()
        if values and self._random.random() < _RANDOM_SHARE:
            return int(self._random.choice(new[self._chance[new] > 0.5].tolist() or new.tolist()))
        if not values:
            merit = -self._mean[new] + np.log(self._feasible(new)) - self._crowding(new)
        else:
            merit = np.log(self._improvement(new, values) + 1e-300) + np.log(self._feasible(new))
        return int(new[np.argmax(merit + self._jitter[new])])

    def _improvement(self, new: NDArray[np.int_], values: dict[int, float]) -> Array:
        """Expected improvement of log time over the best, pending configs taken to turn out as predicted."""
        tried = np.array(list(values))
        offset = float(np.median([values[n] - self._mean[n] for n in values]))
        residual = np.array([values[n] - self._mean[n] - offset for n in values])
        scales = self._fit(tried, residual)
        pending = np.array(sorted(self.history.pending), dtype=int)
        if len(pending):
            believed, _ = self._predict(scales, tried, residual, pending)
            tried, residual = np.concatenate([tried, pending]), np.concatenate([residual, believed])
        mean, deviation = self._predict(scales, tried, residual, new)
        gain = (min(values.values()) - offset - self._mean[new] - mean) / deviation
        density = np.exp(-0.5 * gain**2) / math.sqrt(2 * math.pi)
        return np.asarray(deviation * (gain * _normal_cdf(gain) + density))

    def _fit(self, tried: NDArray[np.int_], residual: Array) -> _Scales:
        if len(tried) < _ENOUGH_TO_FIT:
            return _FIRST
        recent = slice(-200, None)
        return max(_GRID, key=lambda scales: self._likelihood(scales, tried[recent], residual[recent]))

    def _likelihood(self, scales: _Scales, tried: NDArray[np.int_], residual: Array) -> float:
        factor = self._factor(scales, tried)
        whitened = np.linalg.solve(factor, residual)
        return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum())

    def _factor(self, scales: _Scales, tried: NDArray[np.int_]) -> Array:
        covariance = self._covariance(scales, tried, tried)
        return np.asarray(np.linalg.cholesky(covariance + scales.noise**2 * np.eye(len(tried))))

    def _covariance(self, scales: _Scales, left: NDArray[np.int_], right: NDArray[np.int_]) -> Array:
        smooth = scales.smooth**2 * np.exp(-0.5 * self._distance(left, right) / scales.length**2)
        linear = scales.weights**2 * (self._penalties[left] @ self._penalties[right].T)
        return np.asarray(smooth + linear + _CONSTANT)

    def _distance(self, left: NDArray[np.int_], right: NDArray[np.int_]) -> Array:
        """Squared distances of coded parameters."""
        a, b = self._coded[left], self._coded[right]
        squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
        return np.asarray(np.maximum(squared, 0.0))

    def _predict(
        self, scales: _Scales, tried: NDArray[np.int_], residual: Array, new: NDArray[np.int_]
    ) -> tuple[Array, Array]:
        """Mean and standard deviation of the residual at `new`."""
        factor = self._factor(scales, tried)
        cross = np.linalg.solve(factor, self._covariance(scales, tried, new))
        mean = cross.T @ np.linalg.solve(factor, residual)
        prior = scales.smooth**2 + scales.weights**2 * (self._penalties[new] ** 2).sum(1) + _CONSTANT
        variance = np.maximum(prior - (cross**2).sum(0), 1e-10)
        return mean, np.sqrt(variance)

    def _feasible(self, new: NDArray[np.int_]) -> Array:
        """Chance of being feasible: the prior's word, outweighed near configs that were tried."""
        told = self.history.told
        if not told:
            return self._chance[new]
        tried = np.array(list(told))
        worked = np.array([told[n] is not None for n in tried], dtype=float)
        near = np.exp(-0.5 * self._distance(new, tried) / _FEASIBLE_REACH**2)
        return np.asarray((self._chance[new] + near @ worked) / (1 + near.sum(1)))

    def _crowding(self, new: NDArray[np.int_]) -> Array:
        """Before the first result: keep away from what is pending, so that the first batch is no set of twins."""
        if not self.history.pending:
            return np.zeros(len(new))
        pending = np.array(sorted(self.history.pending))
        near = np.exp(-0.5 * self._distance(new, pending) / _FIRST.length**2)
        return np.asarray(_FIRST.smooth * near.max(axis=1))


def _code(space: Space) -> Array:
    """Parameters as coordinates: an ordered one from 0 to 1 by place, a category as a corner at distance 1."""
    columns: list[Sequence[float]] = []
    for name, values in space.domains.items():
        places: dict[Any, int] = {value: place for place, value in enumerate(values)}
        mine = [places[config[name]] for config in space.configs]
        if space.is_ordered(name):
            columns.append([place / max(1, len(values) - 1) for place in mine])
        else:
            columns += [[float(place == corner) / math.sqrt(2) for place in mine] for corner in range(len(values))]
    return np.array(columns).T


def _normal_cdf(x: Array) -> Array:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
