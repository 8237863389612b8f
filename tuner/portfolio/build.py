"""Portfolios made from trials.

The smallest set is chosen among configs that were verified for some shape. A config that was not tried for a shape
counts as not covering it, and as 1.5 times its best where the rule is grown.
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
"""How far from its best a shape may be left."""

MOST_SHAPES = 200
"""Shapes that are looked at; of more, some evenly spread ones."""

_NEAR = 1.1
"""How far from a tuned shape's best a config may be that is launched at other shapes."""

_MOST_TRIALS = 1000
"""Trials that a forecast is made from: the equations of a thousand take 0.1 s to solve."""

_MOST_HELD_OUT = 50
_UNKNOWN = 1.5

_Fit = Callable[[Dims, Config], Config | None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tuned:
    """A shape with the trials of one toolchain; `best` is the time of its verified winner."""

    dims: Dims
    best: float
    times: Mapping[ConfigKey, float]
    verified: frozenset[ConfigKey]

    @property
    def proven(self) -> list[ConfigKey]:
        """Configs that are worth a launch elsewhere."""
        return sorted((key for key in self.verified if self.times[key] <= _NEAR * self.best), key=str)


def tuned(dims: Dims, trials: Sequence[Trial]) -> Tuned | None:
    """None for a shape without a verified winner."""
    times: dict[ConfigKey, float] = {}
    for trial in trials:
        if trial.status is Status.CORRECT and trial.time_us is not None:
            times[config_key(trial.config)] = trial.time_us
    verified = frozenset(config_key(trial.config) for trial in trials if trial.verified) & times.keys()
    if not verified:
        return None
    return Tuned(dims, min(times[key] for key in verified), times, verified)


def portfolios(evidence: Iterable[tuple[Scope, Sequence[Trial]]], spec: KernelSpec | None = None) -> list[Portfolio]:
    """The portfolios of these scopes and their trials, one for each kernel, source, dtype, device, clock, toolchain and
    core count among them: measured before modelled, then by the latest trial."""
    groups: dict[tuple[Any, ...], tuple[Scope, list[Tuned]]] = {}
    latest: dict[tuple[Any, ...], datetime] = {}
    for scope, trials in evidence:
        if (shape := tuned(scope.dims, trials)) is None:
            continue
        shared = (scope.clock is not Clock.MEASURED, *_shared(scope))
        groups.setdefault(shared, (scope, []))[1].append(shape)
        moment = max(trial.created for trial in trials)
        latest[shared] = max(moment, latest.get(shared, moment))
    ordered = sorted(groups, key=lambda shared: (shared[0], -latest[shared].timestamp()))
    return [build(*groups[shared], spec) for shared in ordered]


def _shared(scope: Scope) -> tuple[Any, ...]:
    """What the shapes of a portfolio have in common, beside the clock."""
    texts = (scope.kernel, scope.source_hash, scope.dtype, scope.device, scope.toolchain)
    return (*texts, scope.cores, *scope.dims, *sorted(scope.problem.flags.items()))


def sample(scopes: Iterable[Scope]) -> list[Scope]:
    """Those whose trials are worth reading: `MOST_SHAPES` of each portfolio's, each once. More scopes leave them as
    they are, unless some have smaller keys (`Store.draw`)."""
    groups: dict[tuple[Any, ...], dict[str, Scope]] = {}
    for scope in scopes:
        groups.setdefault((scope.clock, *_shared(scope)), {})[scope.key] = scope
    return [group[key] for group in groups.values() for key in sorted(group)[:MOST_SHAPES]]


def build(
    scope: Scope, shapes: Sequence[Tuned], spec: KernelSpec | None = None, *, factor: float = FACTOR
) -> Portfolio:
    """The portfolio of these shapes, one at least, which share `scope` but for the dimensions.

    With the kernel's spec a config counts for a shape as what it becomes in that shape's space (`adapt_config`).
    """
    kept = _spread(shapes, MOST_SHAPES)
    fit = partial(_fit, spec, scope) if spec else None
    table = _Table(kept, factor, fit)
    columns, rule, smallest = table.solve(range(len(kept)))
    tried, costs = _observed(kept)
    places = {config_key(config): place for place, config in enumerate(tried)}
    portfolio = Portfolio(
        scope=scope,
        factor=factor,
        configs=tuple(dict(table.candidates[column]) for column in columns),
        rule=rule,
        shapes=tuple(shape.dims for shape in kept),
        tried=tried,
        proven=tuple(sorted({places[key] for shape in kept for key in shape.proven})),
        costs=costs,
        smallest=smallest,
        held_out=HeldOut(0, 0, None, None),
        rule_held_out=table.hold_out(),
    )
    return dataclasses.replace(portfolio, held_out=_hold_out(portfolio, kept, spec, fit))


def _observed(shapes: Sequence[Tuned]) -> tuple[tuple[Config, ...], tuple[dict[int, float], ...]]:
    """The configs whose trials are kept, and by their places what they cost each shape. Where there are too many, from
    the fastest to the slowest: what is slow, and where, is as good to know."""
    most = max(1, _MOST_TRIALS // len(shapes))
    places: dict[ConfigKey, int] = {}
    costs = []
    for shape in shapes:
        fastest = sorted(shape.times, key=lambda key: (shape.times[key], str(key)))
        kept = dict.fromkeys([*shape.proven, *_spread(fastest, most)])
        costs.append({places.setdefault(key, len(places)): shape.times[key] / shape.best for key in kept})
    return tuple(dict(key) for key in places), tuple(costs)


def _hold_out(portfolio: Portfolio, shapes: Sequence[Tuned], spec: KernelSpec | None, fit: _Fit | None) -> HeldOut:
    """What `picks` from the other shapes costs a shape, among configs of which that can be told: those timed there that
    are proven for another shape, and the spec's default."""
    target = known_target(portfolio.scope.device, portfolio.scope.cores)
    forecast = portfolio.forecast(spec, target)
    rows: dict[str, list[int]] = {}
    for place, seen in enumerate(forecast.observations):
        rows.setdefault(canonical_json(dict(seen.dims)), []).append(place)
    ratios: list[float | None] = []
    for shape in _spread(shapes, _MOST_HELD_OUT) if len(shapes) > 1 else []:
        places = rows.get(canonical_json(dict(shape.dims)), [])
        others = dict.fromkeys(key for other in shapes if other is not shape for key in other.proven)
        moved = (fit(shape.dims, dict(key)) if fit else dict(key) for key in others)
        default = spec.default(portfolio.scope.problem.resized(shape.dims), target) if spec else None
        known = {config_key(config) for config in [*moved, default] if config}
        expected = zip(forecast.left_out(places), (forecast.observations[place] for place in places), strict=True)
        told = [(cost, seen.cost) for cost, seen in expected if config_key(seen.config) in known]
        ratios.append(min(told)[1] if told else None)
    return _summary(ratios)


class _Table:
    """What each candidate config costs each shape, as a multiple of its best time; None where it was not tried."""

    def __init__(self, shapes: Sequence[Tuned], factor: float, fit: _Fit | None) -> None:
        self.shapes, self.factor, self.fit = shapes, factor, fit
        near = (k for shape in shapes for k in shape.verified if shape.times[k] <= factor * shape.best)
        self.candidates = sorted(dict.fromkeys(near), key=str)
        self.ratios = [[self._ratio(shape, key) for key in self.candidates] for shape in shapes]

    def solve(self, rows: Sequence[int]) -> tuple[list[int], Rule, bool]:
        """The chosen candidates, the rule and whether there is no smaller set, from these shapes alone."""
        own = {key for row in rows for key in self.shapes[row].verified}
        columns = [place for place, key in enumerate(self.candidates) if key in own]
        columns.sort(key=lambda column: math.fsum(_log(self.ratios[row][column]) for row in rows))
        masks = [sum(1 << bit for bit, row in enumerate(rows) if self._covers(row, column)) for column in columns]
        places, smallest = smallest_set_cover(masks)
        chosen = [columns[place] for place in places]
        costs = [[_log(self.ratios[row][column]) for column in chosen] for row in rows]
        return chosen, grow([self.shapes[row].dims for row in rows], costs), smallest

    def hold_out(self) -> HeldOut:
        """What the rule made from the other shapes costs each shape."""
        everything = range(len(self.shapes))
        held = _spread(everything, _MOST_HELD_OUT) if len(everything) > 1 else []
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


def _spread(items: Sequence[T], most: int) -> Sequence[T]:
    if len(items) <= most:
        return items
    return [items[place * len(items) // most] for place in range(most)]
