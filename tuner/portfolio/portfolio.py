"""Portfolios: the smallest set of configs that keeps all tuned shapes near their best, and a rule that picks one.

A portfolio also holds a forecast from all trials (`forecast`), whose picks are the configs that an untuned shape is
launched with. docs/runtime.md compares them with the rule's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tilewise.db.exchange.trials import scope_from_json
from tilewise.db.exchange.typed import Config as ConfigJson
from tilewise.db.exchange.typed import Count, Number, Object, Shape, typed
from tilewise.db.exchange.typed import Dims as DimsJson
from tilewise.db.records import Config, Dims, Scope
from tilewise.kernels.spec import KernelSpec, Target
from tilewise.tuner.portfolio.cost_model import CostModel, Observation
from tilewise.tuner.portfolio.decision_tree import Rule, rule_from_json
from tilewise.tuner.prior.penalties import penalties, score
from tilewise.tuner.space.nearest_config import adapt_config

__all__ = ["ConfigKey", "HeldOut", "Portfolio", "config_key", "portfolio_from_json"]

VERSION = 2
"""Version of a portfolio's JSON."""

_DOUBTED = 4.0
"""Limit on a pick's time by the prior, as a multiple of that of the spec's default. A few tuned shapes, far away, say
little about how a block's size should change with the shape. Chosen by hand, with the picks of earlier runs on an H200
(docs/runtime.md) in sight, and never ablated."""

ConfigKey = tuple[tuple[str, Any], ...]


def config_key(config: Config) -> ConfigKey:
    return tuple(sorted(config.items()))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The cost of picks at shapes left out one at a time: mean and worst time over the best, for `shapes` of them.

    For `unknown` further shapes the time of the picked config is unknown.
    """

    shapes: int
    unknown: int
    mean: float | None
    worst: float | None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"shapes": self.shapes, "unknown": self.unknown}
        times = {"mean": self.mean, "worst": self.worst}
        return body | {name: round(value, 4) for name, value in times.items() if value is not None}


@dataclass(frozen=True)
class Portfolio:
    """A few `configs` that keep each of the `shapes` within `factor` of its best time, and a `rule` that picks one.

    `costs` has one row per shape: it maps a config's index in `tried` to its time as a multiple of the shape's best.
    `proven` holds the indexes of configs that may be launched at other shapes, because they were verified and fast at
    some shape. `scope` belongs to one of the shapes, and all share it except for the dimensions. `smallest` says
    whether the set of `configs` is proven smallest (else it is a greedy one). `held_out` evaluates `picks`, and
    `rule_held_out` the rule.
    """

    scope: Scope
    factor: float
    configs: tuple[Config, ...]
    rule: Rule
    shapes: tuple[Dims, ...]
    tried: tuple[Config, ...]
    proven: tuple[int, ...]
    costs: tuple[Mapping[int, float], ...]
    smallest: bool
    held_out: HeldOut
    rule_held_out: HeldOut
    _forecasts: list[CostModel] = field(default_factory=list, init=False, repr=False, compare=False)

    def picks(self, spec: KernelSpec, dims: Dims, target: Target) -> list[Config]:
        """Return configs of the shape's own space, those expected to be fastest first.

        They are the proven configs, adapted to the shape, and the spec's default. Configs that the prior rates far
        slower than the default come last. The list is empty if no trial is in the space of its shape. It takes about
        a millisecond per config, and more the first time.
        """
        forecast = self.forecast(spec, target)
        if not forecast.observations:
            return []
        problem = self.scope.problem.resized(dims)
        proven = (adapt_config(spec, problem, target, self.tried[index]) for index in self.proven)
        default = spec.default(problem, target)
        configs = {config_key(config): config for config in [*proven, default] if config}
        costs = dict(zip(configs, forecast.costs(dims, list(configs.values())), strict=True))
        slow = {key: 1 / score(penalties(spec, problem, config, target)) for key, config in configs.items()}
        limit = _DOUBTED * slow.get(config_key(default), math.inf)
        return [configs[key] for key in sorted(configs, key=lambda key: (slow[key] > limit, costs[key]))]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `portfolio_from_json` reads back."""
        scope = self.scope
        return {
            "version": VERSION,
            "kernel": scope.kernel,
            "source_hash": scope.source_hash,
            "dtype": scope.dtype,
            **({"flags": dict(scope.problem.flags)} if scope.problem.flags else {}),
            "device": scope.device,
            "clock": str(scope.clock),
            "toolchain": scope.toolchain,
            "cores": scope.cores,
            "factor": self.factor,
            "configs": [dict(config) for config in self.configs],
            "rule": self.rule.to_json(),
            "shapes": [dict(dims) for dims in self.shapes],
            "tried": [dict(config) for config in self.tried],
            "proven": list(self.proven),
            "costs": [[[index, round(cost, 4)] for index, cost in row.items()] for row in self.costs],
            "smallest": self.smallest,
            "held_out": self.held_out.to_json(),
            "rule_held_out": self.rule_held_out.to_json(),
        }

    def forecast(self, spec: KernelSpec | None, target: Target) -> CostModel:
        """Return the forecast. It is made once, because every call is for the same kernel and device."""
        if not self._forecasts:
            seen = (
                Observation(dims, self.tried[index], cost)
                for dims, row in zip(self.shapes, self.costs, strict=True)
                for index, cost in row.items()
            )
            self._forecasts.append(CostModel(list(seen), self.scope.problem, target, spec))
        return self._forecasts[0]


class _HeldOut(msgspec.Struct):
    shapes: Count
    unknown: Count
    mean: Number | None = None
    worst: Number | None = None


class _Portfolio(msgspec.Struct):
    """The JSON of `Portfolio.to_json`, without the fields of its scope."""

    shapes: list[DimsJson]
    configs: list[ConfigJson]
    tried: list[ConfigJson]
    costs: list[list[tuple[Count, Annotated[float, Meta(gt=0, le=sys.float_info.max)]]]]
    proven: list[Count]
    factor: Number
    rule: Object
    smallest: bool
    held_out: _HeldOut
    rule_held_out: _HeldOut
    version: Count | None = None
    flags: Shape = {}


def portfolio_from_json(body: Any) -> Portfolio:
    """Read a portfolio; raise a short `ValueError` if a field is missing, ill-typed or impossible."""
    if isinstance(body, dict) and (version := body.get("version") or 1) != VERSION:
        raise ValueError(f"the portfolio has version {version}, but this tilewise reads {VERSION}; export it again")
    known = typed(body, _Portfolio)
    shapes, tried = known.shapes, known.tried
    if not shapes or not known.configs or any(shape.keys() != shapes[0].keys() for shape in shapes):
        raise ValueError("a portfolio needs configs, and shapes with the same dimensions")
    if len(known.costs) != len(shapes):
        raise ValueError(f"the portfolio has {len(known.costs)} rows of costs; expected {len(shapes)}")
    for index in (*known.proven, *(index for row in known.costs for index, _ in row)):
        if index >= len(tried):
            raise ValueError(f"an index into tried is {index}; expected 0 to {len(tried) - 1}")
    return Portfolio(
        scope=scope_from_json({**body, "dims": {**shapes[0], **known.flags}}),
        factor=known.factor,
        configs=tuple(known.configs),
        rule=rule_from_json(known.rule, len(known.configs), list(shapes[0])),
        shapes=tuple(shapes),
        tried=tuple(tried),
        proven=tuple(known.proven),
        costs=tuple(dict(row) for row in known.costs),
        smallest=known.smallest,
        held_out=HeldOut(**msgspec.structs.asdict(known.held_out)),
        rule_held_out=HeldOut(**msgspec.structs.asdict(known.rule_held_out)),
    )
