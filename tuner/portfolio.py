"""A few configs that serve all shapes: the smallest set that keeps every tuned shape near its best, and a rule.

The set is chosen among configs that were verified for some shape. A config that was not tried for a shape counts as
not covering it, and as 1.5 times its best where the rule is grown or a config picked.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from tilewise.db.exchange.fields import Fields
from tilewise.db.exchange.trials import scope_from_json
from tilewise.db.records import Clock, Config, Dims, Scope, Status, Trial
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.cover import smallest_cover
from tilewise.tuner.fitting import fitted
from tilewise.tuner.rule import Rule, grow, rule_from_json
from tilewise.tuner.targets import known_target

__all__ = [
    "FACTOR",
    "MOST_SHAPES",
    "HeldOut",
    "Portfolio",
    "Tuned",
    "build",
    "portfolio_from_json",
    "portfolios",
    "tuned",
]

FACTOR = 1.05
"""How far from its best a shape may be left."""

MOST_SHAPES = 200
"""Shapes that are looked at; of more, some evenly spread ones."""

_MOST_HELD_OUT = 50
_UNKNOWN = 1.5

_REACH = 0.4
"""How far a shape's times speak for others: their weight falls by e with each such distance. Chosen by leaving shapes
out, on three kernels of an H200 (docs/runtime.md)."""

_Fit = Callable[[Dims, Config], Config | None]
T = TypeVar("T")
_Key = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What the rule costs a shape it was not made from: of `shapes` left out one at a time, the mean and worst time
    over the best. Of `unknown` more the picked config was never tried for that shape."""

    shapes: int
    unknown: int
    mean: float | None
    worst: float | None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"shapes": self.shapes, "unknown": self.unknown}
        times = {"mean": self.mean, "worst": self.worst}
        return body | {name: round(value, 4) for name, value in times.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Portfolio:
    """`configs` keep each of the `shapes` within `factor` of its best time; `rule` picks one of them.

    `costs` has a row a shape and a column a config: its time over the shape's best, None where it was not tried;
    `default_costs` are the same of the spec's default. `scope` is that of one of the shapes: all share it but for the
    dimensions. `smallest` says whether it is proven that no smaller set does (else it is a greedy one). `held_out` is
    of `picks`, `rule_held_out` of the rule.
    """

    scope: Scope
    factor: float
    configs: tuple[Config, ...]
    rule: Rule
    shapes: tuple[Dims, ...]
    costs: tuple[tuple[float | None, ...], ...]
    default_costs: tuple[float | None, ...]
    smallest: bool
    held_out: HeldOut
    rule_held_out: HeldOut

    def picks(self, dims: Dims) -> list[Config | None]:
        """The configs, and None for the spec's default, in the order of what they cost the shapes around `dims`."""
        columns = [*zip(*self.costs, strict=True), self.default_costs]
        order = _by_cost(dims, self.shapes, columns)
        choices = [*self.configs, None]
        return [choices[place] for place in order]

    def to_json(self) -> dict[str, Any]:
        """All that `portfolio_from_json` reads back."""
        scope = self.scope
        return {
            "kernel": scope.kernel,
            "source_hash": scope.source_hash,
            "dtype": scope.dtype,
            "device": scope.device,
            "clock": str(scope.clock),
            "toolchain": scope.toolchain,
            "cores": scope.cores,
            "factor": self.factor,
            "configs": [dict(config) for config in self.configs],
            "rule": self.rule.to_json(),
            "shapes": [dict(dims) for dims in self.shapes],
            "costs": [[_rounded(cost) for cost in row] for row in self.costs],
            "default_costs": [_rounded(cost) for cost in self.default_costs],
            "smallest": self.smallest,
            "held_out": self.held_out.to_json(),
            "rule_held_out": self.rule_held_out.to_json(),
        }


def portfolio_from_json(body: Any) -> Portfolio:
    """Raises `ValueError`, in a few words, for what is missing, ill-typed or impossible."""
    fields = Fields.of(body)
    shapes = tuple(Fields({"shape": shape}).dims("shape") for shape in fields.items("shapes"))
    configs = tuple(Fields({"config": config}).config("config") for config in fields.items("configs"))
    if not shapes or not configs or any(shape.keys() != shapes[0].keys() for shape in shapes):
        raise ValueError("a portfolio has configs, and shapes of the same dimensions")
    costs = tuple(_costs(row, len(configs)) for row in fields.items("costs"))
    if len(costs) != len(shapes):
        raise ValueError(f"a portfolio has {len(costs)} rows of costs; expected {len(shapes)}")
    return Portfolio(
        scope=scope_from_json({**body, "dims": shapes[0]}),
        factor=fields.number("factor"),
        configs=configs,
        rule=rule_from_json(fields.mapping("rule"), len(configs), list(shapes[0])),
        shapes=shapes,
        costs=costs,
        default_costs=_costs(fields.items("default_costs"), len(shapes)),
        smallest=fields.flag("smallest"),
        held_out=_held_out(fields.mapping("held_out")),
        rule_held_out=_held_out(fields.mapping("rule_held_out")),
    )


def _held_out(body: Any) -> HeldOut:
    fields = Fields.of(body)
    times = (fields.optional_number(name) for name in ("mean", "worst"))
    return HeldOut(fields.integer("shapes"), fields.integer("unknown"), *times)


def _costs(row: Any, count: int) -> tuple[float | None, ...]:
    if not isinstance(row, list) or len(row) != count:
        raise ValueError(f"a row of costs is {str(row)[:40]}; expected {count} numbers")
    costs = tuple(Fields({"cost": cost}).optional_number("cost") for cost in row)
    if any(cost is not None and cost <= 0 for cost in costs):
        raise ValueError("a cost is not positive")
    return costs


def _rounded(cost: float | None) -> float | None:
    return None if cost is None else round(cost, 4)


def _by_cost(dims: Dims, shapes: Sequence[Dims], columns: Sequence[Sequence[float | None]]) -> list[int]:
    """The places of the columns, the one of the least cost at `dims` first: the mean of the logarithms at the shapes,
    those that are near counting more."""
    from tilewise.tuner.shapes import shape_distance

    away = [shape_distance(dims, shape) for shape in shapes]
    weights = [math.exp(-(distance - min(away)) / _REACH) for distance in away]

    def cost(place: int) -> float:
        return math.fsum(weight * _log(value) for weight, value in zip(weights, columns[place], strict=True))

    return sorted(range(len(columns)), key=cost)


def _log(cost: float | None) -> float:
    return math.log(_UNKNOWN if cost is None else max(cost, 1.0))


@dataclass(frozen=True, slots=True)
class Tuned:
    """A shape with the trials of one toolchain; `best` is the time of its verified winner."""

    dims: Dims
    best: float
    times: Mapping[_Key, float]
    verified: frozenset[_Key]
    default: float | None = None


def tuned(dims: Dims, trials: Sequence[Trial]) -> Tuned | None:
    """None for a shape without a verified winner."""
    times: dict[_Key, float] = {}
    for trial in trials:
        if trial.status is Status.CORRECT and trial.time_us is not None:
            times[_key(trial.config)] = trial.time_us
    verified = frozenset(_key(trial.config) for trial in trials if trial.verified) & times.keys()
    if not verified:
        return None
    default = next((trial.time_us for trial in reversed(trials) if trial.is_default), None)
    return Tuned(dims, min(times[key] for key in verified), times, verified, default)


def portfolios(evidence: Iterable[tuple[Scope, Sequence[Trial]]], spec: KernelSpec | None = None) -> list[Portfolio]:
    """The portfolios of these scopes and their trials, one for each kernel, source, dtype, device, clock, toolchain and
    core count among them: measured before modelled, then by the latest trial."""
    groups: dict[tuple[Any, ...], tuple[Scope, list[Tuned]]] = {}
    latest: dict[tuple[Any, ...], datetime] = {}
    for scope, trials in evidence:
        if (shape := tuned(scope.dims, trials)) is None:
            continue
        texts = (scope.kernel, scope.source_hash, scope.dtype, scope.device, scope.toolchain)
        shared = (scope.clock is not Clock.MEASURED, *texts, scope.cores, *scope.dims)
        groups.setdefault(shared, (scope, []))[1].append(shape)
        moment = max(trial.created for trial in trials)
        latest[shared] = max(moment, latest.get(shared, moment))
    ordered = sorted(groups, key=lambda shared: (shared[0], -latest[shared].timestamp()))
    return [build(*groups[shared], spec) for shared in ordered]


def build(
    scope: Scope, shapes: Sequence[Tuned], spec: KernelSpec | None = None, *, factor: float = FACTOR
) -> Portfolio:
    """The portfolio of these shapes, one at least, which share `scope` but for the dimensions.

    With the kernel's spec a config counts for a shape as what it becomes in that shape's space (`fitted`).
    """
    kept = _spread(shapes, MOST_SHAPES)
    table = _Table(kept, factor, partial(_fit, spec, scope) if spec else None)
    columns, rule, smallest = table.solve(range(len(kept)))
    held_out, rule_held_out = table.hold_out()
    return Portfolio(
        scope=scope,
        factor=factor,
        configs=tuple(dict(table.candidates[column]) for column in columns),
        rule=rule,
        shapes=tuple(shape.dims for shape in kept),
        costs=tuple(tuple(row[column] for column in columns) for row in table.ratios),
        default_costs=tuple(table.defaults),
        smallest=smallest,
        held_out=held_out,
        rule_held_out=rule_held_out,
    )


class _Table:
    """What each candidate config costs each shape, as a multiple of its best time; None where it was not tried."""

    def __init__(self, shapes: Sequence[Tuned], factor: float, fit: _Fit | None) -> None:
        self.shapes, self.factor, self.fit = shapes, factor, fit
        near = (k for shape in shapes for k in shape.verified if shape.times[k] <= factor * shape.best)
        self.candidates = sorted(dict.fromkeys(near), key=str)
        self.ratios = [[self._ratio(shape, key) for key in self.candidates] for shape in shapes]

    @property
    def defaults(self) -> list[float | None]:
        return [None if shape.default is None else shape.default / shape.best for shape in self.shapes]

    def solve(self, rows: Sequence[int]) -> tuple[list[int], Rule, bool]:
        """The chosen candidates, the rule and whether there is no smaller set, from these shapes alone."""
        own = {key for row in rows for key in self.shapes[row].verified}
        columns = [place for place, key in enumerate(self.candidates) if key in own]
        columns.sort(key=lambda column: math.fsum(_log(self.ratios[row][column]) for row in rows))
        masks = [sum(1 << bit for bit, row in enumerate(rows) if self._covers(row, column)) for column in columns]
        places, smallest = smallest_cover(masks)
        chosen = [columns[place] for place in places]
        costs = [[_log(self.ratios[row][column]) for column in chosen] for row in rows]
        return chosen, grow([self.shapes[row].dims for row in rows], costs), smallest

    def hold_out(self) -> tuple[HeldOut, HeldOut]:
        """Of `Portfolio.picks`, and of the rule."""
        everything = range(len(self.shapes))
        held = _spread(everything, _MOST_HELD_OUT) if len(everything) > 1 else []
        found = [self._without(row, [other for other in everything if other != row]) for row in held]
        by_cost, by_rule = ([pair[side] for pair in found] for side in (0, 1))
        return _summary(by_cost), _summary(by_rule)

    def _without(self, row: int, others: Sequence[int]) -> tuple[float | None, float | None]:
        """What the two picks from the other shapes cost this one; None where that is not known."""
        chosen, rule, _ = self.solve(others)
        dims, defaults = self.shapes[row].dims, self.defaults
        columns = [[self.ratios[other][column] for other in others] for column in chosen]
        columns.append([defaults[other] for other in others])
        first = _by_cost(dims, [self.shapes[other].dims for other in others], columns)[0]
        own = [*(self.ratios[row][column] for column in chosen), defaults[row]]
        return own[first], own[rule.pick(dims)]

    def _ratio(self, shape: Tuned, key: _Key) -> float | None:
        time = shape.times.get(key)
        if time is None and self.fit is not None:
            moved = self.fit(shape.dims, dict(key))
            time = None if moved is None else shape.times.get(_key(moved))
        return None if time is None else time / shape.best

    def _covers(self, row: int, column: int) -> bool:
        ratio = self.ratios[row][column]
        return ratio is not None and ratio <= self.factor


def _summary(ratios: Sequence[float | None]) -> HeldOut:
    known = [ratio for ratio in ratios if ratio is not None]
    mean, worst = (statistics.fmean(known), max(known)) if known else (None, None)
    return HeldOut(len(known), len(ratios) - len(known), mean, worst)


def _fit(spec: KernelSpec, scope: Scope, dims: Dims, config: Config) -> Config | None:
    target = known_target(scope.device, scope.cores)
    return fitted(spec, Problem(scope.kernel, dims, scope.dtype), target, config)


def _key(config: Config) -> _Key:
    return tuple(sorted(config.items()))


def _spread(items: Sequence[T], most: int) -> Sequence[T]:
    if len(items) <= most:
        return items
    return [items[place * len(items) // most] for place in range(most)]
