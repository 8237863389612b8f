"""The configs worth a trial: every combination of parameter values that satisfies the kernel's constraints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from tilewise.db.records import digest
from tilewise.errors import BadConfig, BadSpec, NothingFeasible
from tilewise.kernels.spec import Config, Constraint, KernelSpec, Problem, Target, Value

__all__ = [
    "Codes",
    "Space",
    "broken_rule",
    "check_config",
    "check_tilings",
    "domains",
    "enumerate_space",
    "is_launchable",
]

Codes = NDArray[np.uint16]
"""Positions, a row a config and a column a parameter."""

_MOST_VALUES = 2**16
_TILINGS = 32
"""Configs whose tiling is compared with their grid."""


class Space:
    """An enumerated space. `domains` hold each parameter's values in their order; `configs` the valid combinations.

    A config's *position* is the tuple of its values' places in the domains, its *number* its place among `configs`.
    Only positions are stored, 2 bytes a parameter, and configs are made from them when they are asked for: a million
    configs of ten parameters are 20 MB, and 16 MB more once one was looked up.
    """

    def __init__(
        self, domains: Mapping[str, tuple[Value, ...]], configs: Sequence[Config] = (), codes: Codes | None = None
    ) -> None:
        self.domains = dict(domains)
        if any(len(values) > _MOST_VALUES for values in domains.values()):
            raise ValueError(f"a parameter has more than {_MOST_VALUES} values")
        self._places = {name: {value: place for place, value in enumerate(values)} for name, values in domains.items()}
        if codes is None:
            rows = [self.position(config) for config in configs]
            codes = np.array(rows, dtype=np.uint16).reshape(len(configs), len(domains))
        self.codes = codes
        self.codes.flags.writeable = False

    def __len__(self) -> int:
        return len(self.codes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.domains == other.domains and np.array_equal(self.codes, other.codes)

    __hash__ = None  # type: ignore[assignment]  # compared by content

    @property
    def configs(self) -> Sequence[Config]:
        return _Configs(self.domains, self.codes)

    def position(self, config: Config) -> tuple[int, ...]:
        return tuple(places[config[name]] for name, places in self._places.items())

    def index(self, config: Config) -> int | None:
        """The config's number, or None where it is not in the space."""
        if set(config) != set(self.domains) or any(config[n] not in p for n, p in self._places.items()):
            return None
        return self.numbered(self.position(config))

    def numbered(self, position: Sequence[int]) -> int | None:
        """The number of the config at that position, or None."""
        row = np.array(position, dtype=np.uint16)
        keys, order = self._sorted
        at = int(np.searchsorted(keys, _keys(row[None, :])[0]))
        while at < len(keys) and keys[at] == _keys(row[None, :])[0]:
            if np.array_equal(self.codes[order[at]], row):
                return int(order[at])
            at += 1
        return None

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        keys = _keys(self.codes)
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def is_ordered(self, name: str) -> bool:
        """Whether a parameter's values are numbers in rising order, so that neighbours are alike."""
        values = self.domains[name]
        numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        return len(numbers) == len(values) and all(a < b for a, b in itertools.pairwise(numbers))

    @cached_property
    def key(self) -> str:
        return digest([{name: list(values) for name, values in self.domains.items()}, len(self)])


class _Configs(Sequence[Config]):
    """The configs of a space, each made when it is asked for."""

    def __init__(self, domains: Mapping[str, tuple[Value, ...]], codes: Codes) -> None:
        self._domains, self._codes = domains, codes

    def __len__(self) -> int:
        return len(self._codes)

    @overload
    def __getitem__(self, index: int) -> Config: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Config]: ...

    def __getitem__(self, index: int | slice) -> Config | Sequence[Config]:
        if isinstance(index, slice):
            return _Configs(self._domains, self._codes[index])
        places = self._codes[index].tolist()
        return {name: values[place] for (name, values), place in zip(self._domains.items(), places, strict=True)}

    def __iter__(self) -> Iterator[Config]:
        return (self[number] for number in range(len(self)))


def _keys(codes: Codes) -> NDArray[np.uint64]:
    """A hash of each row (Fowler-Noll-Vo 1a); equal keys are no proof of equal rows."""
    keys = np.full(len(codes), 0xCBF29CE484222325, dtype=np.uint64)
    for column in codes.T:
        keys = (keys ^ column.astype(np.uint64)) * np.uint64(0x100000001B3)
    return keys


def enumerate_space(spec: KernelSpec, problem: Problem, target: Target) -> Space:
    """Raises `NothingFeasible` where no combination satisfies the constraints."""
    ranges = domains(spec, problem, target)
    if spec.configs is not None:
        return Space(ranges, spec.configs(problem, target))
    rules = _rules(spec)
    combinations = itertools.product(*ranges.values())
    valid = (
        number
        for number, values in enumerate(combinations)
        if _holds(rules, dict(zip(ranges, values, strict=True)), problem, target)
    )
    numbers = np.fromiter(valid, dtype=np.int64)
    if not len(numbers):
        sizes = ", ".join(f"{name}={size}" for name, size in problem.dims.items())
        raise NothingFeasible(f"no config of {spec.name} satisfies its constraints at {sizes} on {target.name}")
    return Space(ranges, codes=_unravelled(numbers, [len(values) for values in ranges.values()]))


def _unravelled(numbers: NDArray[np.int64], sizes: Sequence[int]) -> Codes:
    """The positions of combinations by their number, the last parameter changing fastest."""
    codes = np.empty((len(numbers), len(sizes)), dtype=np.uint16)
    for parameter in range(len(sizes) - 1, -1, -1):
        numbers, codes[:, parameter] = np.divmod(numbers, sizes[parameter])
    return codes


def _holds(rules: Sequence[Constraint], config: Config, problem: Problem, target: Target) -> bool:
    return all(rule.holds(config, problem, target) for rule in rules)


def check_config(spec: KernelSpec, problem: Problem, target: Target, config: Config) -> str:
    """The rule that the config breaks, or an empty text. Raises `BadConfig` where it is no config of the space."""
    ranges = domains(spec, problem, target)
    if missing := [name for name in ranges if name not in config]:
        raise BadConfig(f"the config lacks {', '.join(missing)}; {spec.name} has {', '.join(ranges)} on {target.name}")
    if unknown := [name for name in config if name not in ranges]:
        raise BadConfig(
            f"{spec.name} has no parameter {', '.join(unknown)} on {target.name}; it has {', '.join(ranges)}"
        )
    for name, value in config.items():
        if not any(value == allowed and type(value) is type(allowed) for allowed in ranges[name]):
            raise BadConfig(f"{name}={value} is outside the space; it may be {', '.join(map(str, ranges[name]))}")
    return broken_rule(spec, problem, target, config)


def is_launchable(spec: KernelSpec, problem: Problem, target: Target, config: Config) -> bool:
    """Whether the config's names and types are those of the space, less compile options, or of the default: what else
    could not be passed to the kernel. Values are not looked at, nor rules: 10 to 50 us."""
    ranges = domains(spec, problem, target)
    named = ranges.keys() - spec.options() <= config.keys() <= ranges.keys()
    if named and all(type(value) in {type(allowed) for allowed in ranges[name]} for name, value in config.items()):
        return True
    return dict(config) == dict(spec.default(problem, target))


def broken_rule(spec: KernelSpec, problem: Problem, target: Target, config: Config) -> str:
    """The first rule that a config with values of the domains breaks, or an empty text."""
    return next((rule.rule for rule in _rules(spec) if not rule.holds(config, problem, target)), "")


def check_tilings(spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> None:
    """Raises `BadSpec` where the tiling of one of some configs, evenly apart, has other programs than each of its
    launches: the prior would foresee another kernel than the one that runs."""
    for config in configs[:: max(1, len(configs) // _TILINGS)]:
        tiling = spec.tiling(config, problem)
        grids = [math.prod(launch.grid) for launch in spec.plan(config, problem)]
        if tiling.axes and tiling.programs not in grids:
            axes = ", ".join(f"{axis.name} in {axis.programs}" for axis in tiling.axes)
            where = ", ".join(f"{name}={value}" for name, value in config.items())
            raise BadSpec(
                f"tiling(config, problem) of kernel {spec.name} cuts {axes}, which is {tiling.programs} programs "
                f"where {where}; its grid has {' or '.join(map(str, grids))}"
            )


def domains(spec: KernelSpec, problem: Problem, target: Target) -> dict[str, tuple[Value, ...]]:
    """The values of each parameter that exists on the target, each value once."""
    values = {p.name: tuple(dict.fromkeys(p.values(problem, target))) for p in spec.parameters}
    return {name: allowed for name, allowed in values.items() if allowed}


def _rules(spec: KernelSpec) -> tuple[Constraint, ...]:
    def launches(config: Config, problem: Problem, target: Target) -> bool:
        return all(math.prod(launch.grid) <= target.max_programs for launch in spec.plan(config, problem))

    return (*spec.constraints, Constraint("no more programs than the device launches at once", launches))
