"""A forecast of a config's cost at a shape where it was not timed, from times at other shapes.

It is a Gaussian process over shapes and configs together. The distance of two observations depends on their shapes,
their tile parameters, and the prior's penalties of each config at its own shape, because the same tile performs
differently at a shape that leaves it half empty. The correlation is `exp(-distance)` (Matern 1/2). The equations are
from Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006: (2.25) for a forecast, and (5.12), applied
to a block of observations instead of a single one, for a shape left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewise.db.records import Config, Dims, Value
from tilewise.errors import UsageError
from tilewise.kernels.spec import KernelSpec, Problem, Target
from tilewise.tuner.prior.penalties import penalties
from tilewise.tuner.samplers.gaussian_process import Array
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import broken_rule, domains

__all__ = ["CostModel", "Observation"]

_SHAPE_SCALE, _CONFIG_SCALE = 10.0, 4.0
"""Doublings of a dimension, and of a tile parameter or a penalty, that make a distance of 1. These two and `_NOISE`
were chosen by leaving shapes out, on three kernels on an H200: runs before those of docs/runtime.md, which are not
kept. Half or twice these values did as well there."""

_NOISE = 0.03
"""Variance of the unexplained part of a cost, relative to the part that the correlation explains. Chosen as the
scales."""

_UNHEARD = math.log(2)
"""Log cost of a config that resembles none of those timed. Chosen by hand and never ablated, as are the two below."""

_DEAREST = math.log(4)
"""Cap on the log cost: how slow a very slow config is says nothing about fast ones. Chosen by hand."""

_OTHER = 2.0
"""Distance of two different words (a variant, a flag), in doublings. Chosen by hand."""


class Observation(NamedTuple):
    """A config timed at a shape. `cost` is its time divided by the shape's best time."""

    dims: Dims
    config: Config
    cost: float


class CostModel:
    """The forecast for one kernel, dtype and device. Observations outside the kernel's space are ignored.

    Without the kernel's spec the space is unknown and the prior's penalties are omitted.
    """

    def __init__(
        self, observations: Sequence[Observation], problem: Problem, target: Target, spec: KernelSpec | None
    ) -> None:
        """Fit the observations. `problem` is any one of theirs; the others differ from it in their dimensions only."""
        self._problem, self._target, self._spec = problem, target, spec
        self._ranges: dict[tuple[int, ...], Mapping[str, tuple[Value, ...]]] = {}
        self.observations = [seen for seen in observations if self._is_valid(seen)]
        values = {(name, value) for seen in self.observations for name, value in seen.config.items()}
        self._numbers = sorted({name for name, value in values if _is_number(value)})
        self._words = sorted({(name, value) for name, value in values if not _is_number(value)}, key=str)
        costs = [min(math.log(max(seen.cost, 1.0)), _DEAREST) for seen in self.observations]
        self._surprises = np.array(costs) - _UNHEARD

    def costs(self, dims: Dims, configs: Sequence[Config]) -> list[float]:
        """Return the logarithm of each config's expected cost at the shape. Only the differences are meaningful."""
        if not self.observations or not configs:
            return [_UNHEARD] * len(configs)
        points = np.array([self._point(dims, config) for config in configs])
        forecast = _UNHEARD + np.exp(-_distances(points, self._points)) @ self._weights
        return [float(cost) for cost in forecast]

    def left_out(self, places: Sequence[int]) -> list[float]:
        """Return the expected log costs of the observations with these indexes, forecast from all others."""
        if not places:
            return []
        block = np.array(places, dtype=np.intp)
        inner = self._inverse[np.ix_(block, block)]
        forecast = _UNHEARD + self._surprises[block] - np.linalg.solve(inner, self._weights[block])
        return [float(cost) for cost in forecast]

    @cached_property
    def _points(self) -> Array:
        return np.array([self._point(seen.dims, seen.config) for seen in self.observations])

    @cached_property
    def _inverse(self) -> Array:
        alike = np.exp(-_distances(self._points, self._points))
        return np.asarray(np.linalg.inv(alike + _NOISE * np.eye(len(alike))))

    @cached_property
    def _weights(self) -> Array:
        return np.asarray(self._inverse @ self._surprises)

    def _point(self, dims: Dims, config: Config) -> list[float]:
        shape = [math.log2(dims[name]) / _SHAPE_SCALE for name in sorted(dims)]
        numbers = [_doublings(config.get(name, 0)) for name in self._numbers]
        words = [_OTHER / math.sqrt(2) * (config.get(name) == value) for name, value in self._words]
        flaws = [math.log2(factor) for factor in self._penalties(dims, config)]
        return shape + [value / _CONFIG_SCALE for value in (*numbers, *words, *flaws)]

    def _penalties(self, dims: Dims, config: Config) -> list[float]:
        if self._spec is None:
            return []
        problem = self._problem.resized(dims)
        return list(penalties(self._spec, problem, config, self._target).values())

    def _is_valid(self, seen: Observation) -> bool:
        spec = self._spec
        if spec is None:
            return True
        try:
            problem = make_problem(spec, self._problem.resized(seen.dims).shape, self._problem.dtype)
        except UsageError:
            return False
        shape = tuple(problem.dims.values())
        if shape not in self._ranges:
            self._ranges[shape] = domains(spec, problem, self._target)
        ranges = self._ranges[shape]
        if ranges.keys() != seen.config.keys() or any(seen.config[name] not in ranges[name] for name in ranges):
            return False
        return not broken_rule(spec, problem, self._target, seen.config)


def _distances(left: Array, right: Array) -> Array:
    """Return the distance between each row of `left` and each row of `right`."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _doublings(value: Value) -> float:
    if not _is_number(value):
        return 0.0
    number = float(value)
    return math.log2(number) if number > 0 else number - 1.0
