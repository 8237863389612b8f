"""A few configs that serve all shapes, as data: the smallest set that keeps tuned shapes near their best, and a rule.

Beside the set and the rule stands what all trials foretell of any shape (`forecast`), which costs less where it is
asked, and is what a shape is launched with.
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
    _forecasts: list[CostModel] = field(default_factory=list, init=False, repr=False, compare=False)

    def picks(self, spec: KernelSpec, dims: Dims, target: Target) -> list[Config]:
        """Configs of that shape's own space, the one that is expected to be fastest there first: the proven ones as
        they fit there, and the spec's default, which goes before those that the prior holds to be far slower. None
        where no trial is of its shape's space. Takes about a millisecond a config, the first time some more."""
        forecast = self.forecast(spec, target)
        if not forecast.observations:
            return []
        problem = self.scope.problem.resized(dims)
        proven = (adapt_config(spec, problem, target, self.tried[place]) for place in self.proven)
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
            "costs": [[[place, round(cost, 4)] for place, cost in row.items()] for row in self.costs],
            "smallest": self.smallest,
            "held_out": self.held_out.to_json(),
            "rule_held_out": self.rule_held_out.to_json(),
        }

    def forecast(self, spec: KernelSpec | None, target: Target) -> CostModel:
        """Made once: every call means the same kernel and device."""
        if not self._forecasts:
            seen = (
                Observation(dims, self.tried[place], cost)
                for dims, row in zip(self.shapes, self.costs, strict=True)
                for place, cost in row.items()
            )
            self._forecasts.append(CostModel(list(seen), self.scope.problem, target, spec))
        return self._forecasts[0]


class _HeldOut(msgspec.Struct):
    shapes: Count
    unknown: Count
    mean: Number | None = None
    worst: Number | None = None


class _Portfolio(msgspec.Struct):
    """What `Portfolio.to_json` writes, beside the fields of its scope."""

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
    """Raises `ValueError`, in a few words, for what is missing, ill-typed or impossible."""
    if isinstance(body, dict) and (version := body.get("version") or 1) != VERSION:
        raise ValueError(f"a portfolio of version {version}; this tilewise reads version {VERSION}: export it again")
    known = typed(body, _Portfolio)
    shapes, tried = known.shapes, known.tried
    if not shapes or not known.configs or any(shape.keys() != shapes[0].keys() for shape in shapes):
        raise ValueError("a portfolio has configs, and shapes of the same dimensions")
    if len(known.costs) != len(shapes):
        raise ValueError(f"a portfolio has {len(known.costs)} rows of costs; expected {len(shapes)}")
    for place in (*known.proven, *(place for row in known.costs for place, _ in row)):
        if place >= len(tried):
            raise ValueError(f"the place of a config is {place}; expected 0 to {len(tried) - 1}")
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
