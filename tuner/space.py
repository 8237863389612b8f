"""The configs worth a trial: every combination of parameter values that satisfies the kernel's constraints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tilewise.db.records import digest
from tilewise.errors import BadConfig, NothingFeasible
from tilewise.kernels.spec import Config, Constraint, KernelSpec, Problem, Target, Value

__all__ = ["Space", "check_config", "enumerate_space"]


@dataclass(frozen=True)
class Space:
    """An enumerated space. `domains` hold each parameter's values in their order; `configs` the valid combinations.

    A config's *position* is the tuple of its values' places in the domains.
    """

    domains: Mapping[str, tuple[Value, ...]]
    configs: tuple[Config, ...]
    _places: Mapping[str, Mapping[Value, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {name: {value: place for place, value in enumerate(values)} for name, values in self.domains.items()}
        object.__setattr__(self, "_places", places)

    def __len__(self) -> int:
        return len(self.configs)

    def position(self, config: Config) -> tuple[int, ...]:
        return tuple(places[config[name]] for name, places in self._places.items())

    def index(self, config: Config) -> int | None:
        """The config's number, or None where it is not in the space."""
        if set(config) != set(self.domains) or any(config[n] not in p for n, p in self._places.items()):
            return None
        return self._numbers.get(self.position(config))

    @cached_property
    def _numbers(self) -> dict[tuple[int, ...], int]:
        return {self.position(config): number for number, config in enumerate(self.configs)}

    def numbered(self, position: Sequence[int]) -> int | None:
        return self._numbers.get(tuple(position))

    def is_ordered(self, name: str) -> bool:
        """Whether a parameter's values are numbers in rising order, so that neighbours are alike."""
        values = self.domains[name]
        numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        return len(numbers) == len(values) and all(a < b for a, b in itertools.pairwise(numbers))

    @cached_property
    def key(self) -> str:
        return digest([{name: list(values) for name, values in self.domains.items()}, len(self.configs)])


def enumerate_space(spec: KernelSpec, problem: Problem, target: Target) -> Space:
    """Raises `NothingFeasible` where no combination satisfies the constraints."""
    domains = _domains(spec, problem, target)
    if spec.configs is not None:
        return Space(domains, tuple(spec.configs(problem, target)))
    rules = _rules(spec)
    names = list(domains)
    combinations: Iterable[Config] = (
        dict(zip(names, values, strict=True)) for values in itertools.product(*domains.values())
    )
    configs = tuple(c for c in combinations if all(rule.holds(c, problem, target) for rule in rules))
    if not configs:
        sizes = ", ".join(f"{name}={size}" for name, size in problem.dims.items())
        raise NothingFeasible(f"no config of {spec.name} satisfies its constraints at {sizes} on {target.name}")
    return Space(domains, configs)


def check_config(spec: KernelSpec, problem: Problem, target: Target, config: Config) -> str:
    """The rule that the config breaks, or an empty text. Raises `BadConfig` where it is no config of the space."""
    domains = _domains(spec, problem, target)
    if missing := [name for name in domains if name not in config]:
        raise BadConfig(f"the config lacks {', '.join(missing)}; {spec.name} has {', '.join(domains)} on {target.name}")
    if unknown := [name for name in config if name not in domains]:
        raise BadConfig(
            f"{spec.name} has no parameter {', '.join(unknown)} on {target.name}; it has {', '.join(domains)}"
        )
    for name, value in config.items():
        if not any(value == allowed and type(value) is type(allowed) for allowed in domains[name]):
            raise BadConfig(f"{name}={value} is outside the space; it may be {', '.join(map(str, domains[name]))}")
    return next((rule.rule for rule in _rules(spec) if not rule.holds(config, problem, target)), "")


def _domains(spec: KernelSpec, problem: Problem, target: Target) -> dict[str, tuple[Value, ...]]:
    """The values of each parameter that exists on the target, each value once."""
    domains = {p.name: tuple(dict.fromkeys(p.values(problem, target))) for p in spec.parameters}
    return {name: values for name, values in domains.items() if values}


def _rules(spec: KernelSpec) -> tuple[Constraint, ...]:
    def launches(config: Config, problem: Problem, target: Target) -> bool:
        return all(math.prod(launch.grid) <= target.max_programs for launch in spec.plan(config, problem))

    return (*spec.constraints, Constraint("no more programs than the device launches at once", launches))
