"""A few configs that serve all shapes, as data: the smallest set that keeps tuned shapes near their best, and a rule.

Beside the set and the rule stands what all trials foretell of any shape (`forecast`), which costs less where it is
asked, and is what a shape is launched with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewise.db.exchange.fields import Fields
from tilewise.db.exchange.trials import scope_from_json
from tilewise.db.records import Config, Dims, Scope
from tilewise.kernels.spec import KernelSpec, Problem, Target
from tilewise.tuner.fitting import fitted
from tilewise.tuner.forecast import Forecast, Observation
from tilewise.tuner.prior import penalties, score
from tilewise.tuner.rule import Rule, rule_from_json

__all__ = ["ConfigKey", "HeldOut", "Portfolio", "config_key", "portfolio_from_json"]

VERSION = 2
"""Of a portfolio in JSON."""

_DOUBTED = 4.0
"""How much slower than the spec's default the prior may hold a pick. Where few shapes were tuned, and far away, they
say little of how a block's size is to change with the shape; of 193 picks on an H200, whose shapes were tuned
afterwards (docs/runtime.md), the prior held none as slow."""

ConfigKey = tuple[tuple[str, Any], ...]


def config_key(config: Config) -> ConfigKey:
    return tuple(sorted(config.items()))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What a pick costs a shape that had no part in it: of `shapes` left out one at a time, the mean and worst time
    over the best. Of `unknown` more no time of what was picked is known."""

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
    """`configs` keep each of the `shapes` within `factor` of its best time; `rule` picks one of them.

    `costs` has for each shape what the configs tried there cost, a multiple of the shape's best by the config's place
    in `tried`; `proven` are the places of those that may be launched elsewhere, verified somewhere and fast there.
    `scope` is that of one of the shapes: all share it but for the dimensions. `smallest` says whether it is proven that
    no smaller set of `configs` does (else it is a greedy one). `held_out` is of `picks`, `rule_held_out` of the rule.
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
    _forecasts: list[Forecast] = field(default_factory=list, init=False, repr=False, compare=False)

    def picks(self, spec: KernelSpec, dims: Dims, target: Target) -> list[Config]:
        """Configs of that shape's own space, the one that is expected to be fastest there first: the proven ones as
        they fit there, and the spec's default, which goes before those that the prior holds to be far slower. None
        where no trial is of its shape's space. Takes about a millisecond a config, the first time some more."""
        forecast = self.forecast(spec, target)
        if not forecast.observations:
            return []
        problem = Problem(spec.name, dims, self.scope.dtype)
        proven = (fitted(spec, problem, target, self.tried[place]) for place in self.proven)
        default = spec.default(problem, target)
        configs = {config_key(config): config for config in [*proven, default] if config}
        costs = dict(zip(configs, forecast.costs(dims, list(configs.values())), strict=True))
        slow = {key: 1 / score(penalties(spec, problem, config, target)) for key, config in configs.items()}
        limit = _DOUBTED * slow.get(config_key(default), math.inf)
        return [configs[key] for key in sorted(configs, key=lambda key: (slow[key] > limit, costs[key]))]

    def to_json(self) -> dict[str, Any]:
        """All that `portfolio_from_json` reads back."""
        scope = self.scope
        return {
            "version": VERSION,
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
            "tried": [dict(config) for config in self.tried],
            "proven": list(self.proven),
            "costs": [[[place, round(cost, 4)] for place, cost in row.items()] for row in self.costs],
            "smallest": self.smallest,
            "held_out": self.held_out.to_json(),
            "rule_held_out": self.rule_held_out.to_json(),
        }

    def forecast(self, spec: KernelSpec | None, target: Target) -> Forecast:
        """Made once: every call means the same kernel and device."""
        if not self._forecasts:
            seen = (
                Observation(dims, self.tried[place], cost)
                for dims, row in zip(self.shapes, self.costs, strict=True)
                for place, cost in row.items()
            )
            self._forecasts.append(Forecast(list(seen), self.scope.dtype, target, spec))
        return self._forecasts[0]


def portfolio_from_json(body: Any) -> Portfolio:
    """Raises `ValueError`, in a few words, for what is missing, ill-typed or impossible."""
    fields = Fields.of(body)
    if (version := fields.optional_integer("version") or 1) != VERSION:
        raise ValueError(f"a portfolio of version {version}; this tilewise reads version {VERSION}: export it again")
    shapes = tuple(Fields({"shape": shape}).dims("shape") for shape in fields.items("shapes"))
    configs, tried = (
        tuple(Fields({"config": config}).config("config") for config in fields.items(name))
        for name in ("configs", "tried")
    )
    if not shapes or not configs or any(shape.keys() != shapes[0].keys() for shape in shapes):
        raise ValueError("a portfolio has configs, and shapes of the same dimensions")
    costs = tuple(_costs(row, len(tried)) for row in fields.items("costs"))
    if len(costs) != len(shapes):
        raise ValueError(f"a portfolio has {len(costs)} rows of costs; expected {len(shapes)}")
    return Portfolio(
        scope=scope_from_json({**body, "dims": shapes[0]}),
        factor=fields.number("factor"),
        configs=configs,
        rule=rule_from_json(fields.mapping("rule"), len(configs), list(shapes[0])),
        shapes=shapes,
        tried=tried,
        proven=tuple(_place(place, len(tried)) for place in fields.items("proven")),
        costs=costs,
        smallest=fields.flag("smallest"),
        held_out=_held_out(fields.mapping("held_out")),
        rule_held_out=_held_out(fields.mapping("rule_held_out")),
    )


def _held_out(body: Any) -> HeldOut:
    fields = Fields.of(body)
    times = (fields.optional_number(name) for name in ("mean", "worst"))
    return HeldOut(fields.integer("shapes"), fields.integer("unknown"), *times)


def _costs(row: Any, count: int) -> dict[int, float]:
    if not isinstance(row, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in row):
        raise ValueError(f"a row of costs is {str(row)[:40]}; expected pairs of a config's place and its cost")
    costs = {_place(place, count): Fields({"cost": cost}).number("cost") for place, cost in row}
    if any(cost <= 0 for cost in costs.values()):
        raise ValueError("a cost is not positive")
    return costs


def _place(place: Any, count: int) -> int:
    if type(place) is not int or not 0 <= place < count:
        raise ValueError(f"the place of a config is {str(place)[:20]}; expected 0 to {count - 1}")
    return place
