"""The construction of portfolios from trials.

The smallest set is chosen among configs that were verified for some shape. A config that was not tried for a shape does
not cover it, and counts as 1.5 times the best time there when the rule is grown.

"Chosen by hand" below means: in view of the earlier runs on an H200 (docs/runtime.md), and never ablated.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from tilewise.db.records import Clock, Config, Dims, Scope, Status, Trial, canonical_json
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.portfolio.decision_tree import Rule, grow
from tilewise.tuner.portfolio.portfolio import ConfigKey, HeldOut, Portfolio, config_key
from tilewise.tuner.portfolio.set_cover import smallest_set_cover
from tilewise.tuner.space.nearest_config import adapt_config

__all__ = ["FACTOR", "MOST_SHAPES", "Tuned", "build", "portfolios", "sample", "tuned"]

FACTOR = 1.05
"""Largest ratio to a shape's best time at which a config covers the shape. Chosen by hand: the loss that is
accepted."""

MOST_SHAPES = 200
"""Most shapes that a portfolio is built from; of more, evenly spread ones are taken. Chosen by hand, for the time that
building takes."""

_NEAR = 1.1
"""Largest ratio to a tuned shape's best time of a config that may be launched at other shapes. Chosen by hand."""

_TRIAL_LIMIT = 1000
"""Most trials that a forecast is made from: the equations of a thousand take 0.1 s to solve. Chosen by hand."""

_HELD_OUT_LIMIT = 50
"""Most shapes that are left out in turn to judge the tree. Chosen by hand, for the time that building takes."""

_UNKNOWN = 1.5
"""Cost of a config at a shape where it was not tried, when the tree is grown. Chosen by hand."""

_Fit = Callable[[Dims, Config], Config | None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tuned:
    """A shape with its trials of one toolchain. `best` is the time of its verified winner."""

    dims: Dims
    best: float
    times: Mapping[ConfigKey, float]
    verified: frozenset[ConfigKey]

    @property
    def proven(self) -> list[ConfigKey]:
        """Return the configs that may be launched at other shapes: verified, and near the best here."""
        return sorted((key for key in self.verified if self.times[key] <= _NEAR * self.best), key=str)


def tuned(dims: Dims, trials: Sequence[Trial]) -> Tuned | None:
    """Return the shape with its trials, or None if it has no verified winner."""
    times: dict[ConfigKey, float] = {}
    for trial in trials:
        if trial.status is Status.CORRECT and trial.time_us is not None:
            times[config_key(trial.config)] = trial.time_us
    verified = frozenset(config_key(trial.config) for trial in trials if trial.verified) & times.keys()
    if not verified:
        return None
    return Tuned(dims, min(times[key] for key in verified), times, verified)


def portfolios(evidence: Iterable[tuple[Scope, Sequence[Trial]]], spec: KernelSpec | None = None) -> list[Portfolio]:
    """Build portfolios from scopes and their trials.

    There is one per kernel, source, dtype, device, clock, toolchain and core count: measured before modelled, then the
    one with the latest trial first.
    """
    groups: dict[tuple[Any, ...], tuple[Scope, list[Tuned]]] = {}
    latest: dict[tuple[Any, ...], datetime] = {}
    for scope, trials in evidence:
        if scope.problem.objective or (shape := tuned(scope.dims, trials)) is None:  # a portfolio's costs are times
            continue
        shared = (scope.clock is not Clock.MEASURED, *_shared(scope))
        groups.setdefault(shared, (scope, []))[1].append(shape)
        moment = max(trial.created for trial in trials)
        latest[shared] = max(moment, latest.get(shared, moment))
    ordered = sorted(groups, key=lambda shared: (shared[0], -latest[shared].timestamp()))
    return [build(*groups[shared], spec) for shared in ordered]


def _shared(scope: Scope) -> tuple[Any, ...]:
    """Return the fields that all shapes of a portfolio share, except the clock."""
    texts = (scope.kernel, scope.source_hash, scope.dtype, scope.device, scope.toolchain)
    return (*texts, scope.cores, *scope.dims, *sorted(scope.problem.flags.items()))


def sample(scopes: Iterable[Scope]) -> list[Scope]:
    """Choose the scopes to read trials of: at most `MOST_SHAPES` per portfolio, each once.

    They are those with the smallest keys (as in `Store.draw`), so additional scopes rarely change the choice.
    """
    groups: dict[tuple[Any, ...], dict[str, Scope]] = {}
    for scope in scopes:
        groups.setdefault((scope.clock, *_shared(scope)), {})[scope.key] = scope
    return [group[key] for group in groups.values() for key in sorted(group)[:MOST_SHAPES]]


def build(
    scope: Scope, shapes: Sequence[Tuned], spec: KernelSpec | None = None, *, factor: float = FACTOR
) -> Portfolio:
    """Build the portfolio of one or more shapes, which share `scope` except for its dimensions.

    With the kernel's spec, each config is adapted to the space of the shape that it is judged at (`adapt_config`).
    """
    kept = _spread(shapes, MOST_SHAPES)
    fit = partial(_fit, spec, scope) if spec else None
    table = _Table(kept, factor, fit)
    columns, rule, smallest = table.solve(range(len(kept)))
    tried, costs = _observed(kept)
    indexes = {config_key(config): index for index, config in enumerate(tried)}
    portfolio = Portfolio(
        scope=scope,
        factor=factor,
        configs=tuple(dict(table.candidates[column]) for column in columns),
        rule=rule,
        shapes=tuple(shape.dims for shape in kept),
        tried=tried,
        proven=tuple(sorted({indexes[key] for shape in kept for key in shape.proven})),
        costs=costs,
        smallest=smallest,
        held_out=HeldOut(0, 0, None, None),
        rule_held_out=table.hold_out(),
    )
    return dataclasses.replace(portfolio, held_out=_hold_out(portfolio, kept, spec, fit))


def _observed(shapes: Sequence[Tuned]) -> tuple[tuple[Config, ...], tuple[dict[int, float], ...]]:
    """Return the configs whose trials are kept, and per shape the cost of each by its index.

    If there are too many trials, those kept range from the fastest to the slowest: slow ones are informative too.
    """
    limit = max(1, _TRIAL_LIMIT // len(shapes))
    indexes: dict[ConfigKey, int] = {}
    costs = []
    for shape in shapes:
        fastest = sorted(shape.times, key=lambda key: (shape.times[key], str(key)))
        kept = dict.fromkeys([*shape.proven, *_spread(fastest, limit)])
        costs.append({indexes.setdefault(key, len(indexes)): shape.times[key] / shape.best for key in kept})
    return tuple(dict(key) for key in indexes), tuple(costs)


def _hold_out(portfolio: Portfolio, shapes: Sequence[Tuned], spec: KernelSpec | None, fit: _Fit | None) -> HeldOut:
    """Evaluate `picks` on shapes left out one at a time: the cost of the pick that the other shapes lead to.

    The pick is among the configs whose cost is known: those timed at the shape that are proven for another shape, and
    the spec's default.
    """
    target = known_target(portfolio.scope.device, portfolio.scope.cores)
    forecast = portfolio.forecast(spec, target)
    rows: dict[str, list[int]] = {}
    for index, seen in enumerate(forecast.observations):
        rows.setdefault(canonical_json(dict(seen.dims)), []).append(index)
    ratios: list[float | None] = []
    for shape in _spread(shapes, _HELD_OUT_LIMIT) if len(shapes) > 1 else []:
        own = rows.get(canonical_json(dict(shape.dims)), [])
        others = dict.fromkeys(key for other in shapes if other is not shape for key in other.proven)
        moved = (fit(shape.dims, dict(key)) if fit else dict(key) for key in others)
        default = spec.default(portfolio.scope.problem.resized(shape.dims), target) if spec else None
        known = {config_key(config) for config in [*moved, default] if config}
        expected = zip(forecast.left_out(own), (forecast.observations[index] for index in own), strict=True)
        eligible = [(cost, seen.cost) for cost, seen in expected if config_key(seen.config) in known]
        ratios.append(min(eligible)[1] if eligible else None)
    return _summary(ratios)


class _Table:
    """The cost of each candidate config at each shape, as a multiple of its best time; None if not tried there."""

    def __init__(self, shapes: Sequence[Tuned], factor: float, fit: _Fit | None) -> None:
        self.shapes, self.factor, self.fit = shapes, factor, fit
        near = (k for shape in shapes for k in shape.verified if shape.times[k] <= factor * shape.best)
        self.candidates = sorted(dict.fromkeys(near), key=str)
        self.ratios = [[self._ratio(shape, key) for key in self.candidates] for shape in shapes]

    def solve(self, rows: Sequence[int]) -> tuple[list[int], Rule, bool]:
        """Return the chosen candidates, the rule, and whether the set is proven smallest, from these shapes alone."""
        own = {key for row in rows for key in self.shapes[row].verified}
        columns = [column for column, key in enumerate(self.candidates) if key in own]
        columns.sort(key=lambda column: math.fsum(_log(self.ratios[row][column]) for row in rows))
        masks = [sum(1 << bit for bit, row in enumerate(rows) if self._covers(row, column)) for column in columns]
        cover, smallest = smallest_set_cover(masks)
        chosen = [columns[index] for index in cover]
        costs = [[_log(self.ratios[row][column]) for column in chosen] for row in rows]
        return chosen, grow([self.shapes[row].dims for row in rows], costs), smallest

    def hold_out(self) -> HeldOut:
        """Evaluate the rule on shapes left out one at a time."""
        everything = range(len(self.shapes))
        held = _spread(everything, _HELD_OUT_LIMIT) if len(everything) > 1 else []
        return _summary([self._without(row, [other for other in everything if other != row]) for row in held])

    def _without(self, row: int, others: Sequence[int]) -> float | None:
        chosen, rule, _ = self.solve(others)
        return self.ratios[row][chosen[rule.pick(self.shapes[row].dims)]]

    def _ratio(self, shape: Tuned, key: ConfigKey) -> float | None:
        time = shape.times.get(key)
        if time is None and self.fit is not None:
            moved = self.fit(shape.dims, dict(key))
            time = None if moved is None else shape.times.get(config_key(moved))
        return None if time is None else time / shape.best

    def _covers(self, row: int, column: int) -> bool:
        ratio = self.ratios[row][column]
        return ratio is not None and ratio <= self.factor


def _log(cost: float | None) -> float:
    return math.log(_UNKNOWN if cost is None else max(cost, 1.0))


def _summary(ratios: Sequence[float | None]) -> HeldOut:
    known = [ratio for ratio in ratios if ratio is not None]
    mean, worst = (statistics.fmean(known), max(known)) if known else (None, None)
    return HeldOut(len(known), len(ratios) - len(known), mean, worst)


def _fit(spec: KernelSpec, scope: Scope, dims: Dims, config: Config) -> Config | None:
    target = known_target(scope.device, scope.cores)
    return adapt_config(spec, scope.problem.resized(dims), target, config)


def _spread(items: Sequence[T], limit: int) -> Sequence[T]:
    if len(items) <= limit:
        return items
    return [items[index * len(items) // limit] for index in range(limit)]
