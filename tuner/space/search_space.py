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
from tilewise.tuner.space.combinations import valid_combinations

__all__ = [
    "Space",
    "ValueIndices",
    "broken_rule",
    "check_config",
    "check_tilings",
    "domains",
    "enumerate_space",
    "is_launchable",
]

ValueIndices = NDArray[np.uint16]
"""The index of each value in its parameter's domain: one row per config, one column per parameter."""

_VALUE_LIMIT = 2**16
_TILINGS = 32
"""Number of configs whose tiling is compared with their grid."""


class Space:
    """An enumerated space: `domains` holds each parameter's values in order, `configs` the valid combinations.

    A config's *config index* is its index in `configs`; its *value indices* are the indices of its values in their
    domains. Only value indices are stored, at 2 bytes per parameter, and configs are built on access: a million
    configs of ten parameters take 20 MB, and 16 MB more after the first look-up by config.
    """

    def __init__(
        self,
        domains: Mapping[str, tuple[Value, ...]],
        configs: Sequence[Config] = (),
        value_indices: ValueIndices | None = None,
    ) -> None:
        self.domains = dict(domains)
        if any(len(values) > _VALUE_LIMIT for values in domains.values()):
            raise ValueError(f"a parameter has more than {_VALUE_LIMIT} values")
        self._index_by_value = {
            name: {value: index for index, value in enumerate(values)} for name, values in domains.items()
        }
        if value_indices is None:
            rows = [self.value_indices_of(config) for config in configs]
            value_indices = np.array(rows, dtype=np.uint16).reshape(len(configs), len(domains))
        self.value_indices = value_indices
        self.value_indices.flags.writeable = False

    def __len__(self) -> int:
        return len(self.value_indices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Space):
            return False
        return self.domains == other.domains and np.array_equal(self.value_indices, other.value_indices)

    __hash__ = None  # type: ignore[assignment]  # compared by content

    @property
    def configs(self) -> Sequence[Config]:
        return _Configs(self.domains, self.value_indices)

    def value_indices_of(self, config: Config) -> tuple[int, ...]:
        return tuple(indices[config[name]] for name, indices in self._index_by_value.items())

    def index(self, config: Config) -> int | None:
        """Return the config index, or None for a config outside the space."""
        if set(config) != set(self.domains) or any(
            config[name] not in indices for name, indices in self._index_by_value.items()
        ):
            return None
        return self.index_of(self.value_indices_of(config))

    def index_of(self, value_indices_of: Sequence[int]) -> int | None:
        """Return the config index of the config with these value indices, or None."""
        row = np.array(value_indices_of, dtype=np.uint16)
        keys, order = self._sorted
        at = int(np.searchsorted(keys, _keys(row[None, :])[0]))
        while at < len(keys) and keys[at] == _keys(row[None, :])[0]:
            if np.array_equal(self.value_indices[order[at]], row):
                return int(order[at])
            at += 1
        return None

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        keys = _keys(self.value_indices)
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def is_ordered(self, name: str) -> bool:
        """Return whether a parameter's values are numbers in rising order, so that neighbours are alike."""
        values = self.domains[name]
        numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        return len(numbers) == len(values) and all(a < b for a, b in itertools.pairwise(numbers))

    @cached_property
    def key(self) -> str:
        return digest([{name: list(values) for name, values in self.domains.items()}, len(self)])


class _Configs(Sequence[Config]):
    """The configs of a space, each built on access."""

    def __init__(self, domains: Mapping[str, tuple[Value, ...]], value_indices: ValueIndices) -> None:
        self._domains, self._value_indices = domains, value_indices

    def __len__(self) -> int:
        return len(self._value_indices)

    @overload
    def __getitem__(self, index: int) -> Config: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Config]: ...

    def __getitem__(self, index: int | slice) -> Config | Sequence[Config]:
        if isinstance(index, slice):
            return _Configs(self._domains, self._value_indices[index])
        row = self._value_indices[index].tolist()
        return {name: values[at] for (name, values), at in zip(self._domains.items(), row, strict=True)}

    def __iter__(self) -> Iterator[Config]:
        return (self[index] for index in range(len(self)))


def _keys(value_indices: ValueIndices) -> NDArray[np.uint64]:
    """Hash each row (Fowler-Noll-Vo 1a). Different rows may have equal hashes."""
    keys = np.full(len(value_indices), 0xCBF29CE484222325, dtype=np.uint64)
    for column in value_indices.T:
        keys = (keys ^ column.astype(np.uint64)) * np.uint64(0x100000001B3)
    return keys


def enumerate_space(spec: KernelSpec, problem: Problem, target: Target) -> Space:
    """Enumerate the configs that satisfy the kernel's constraints. Raises `NothingFeasible` if none does."""
    ranges = domains(spec, problem, target)
    if spec.configs is not None:
        return Space(ranges, spec.configs(problem, target))
    rules = _rules(spec)
    indices = np.fromiter(valid_combinations(rules, ranges, problem, target), dtype=np.int64)
    if not len(indices):
        where = f"at {', '.join(f'{name}={value}' for name, value in problem.shape.items())} on {target.name}"
        all_break = "".join(f": {rule}" for rule in _never_satisfied(rules, ranges, problem, target))
        raise NothingFeasible(f"no config of {spec.name} satisfies its constraints {where}{all_break}")
    return Space(ranges, value_indices=_unravelled(indices, [len(values) for values in ranges.values()]))


def _never_satisfied(
    rules: Sequence[Constraint], ranges: Mapping[str, Sequence[Value]], problem: Problem, target: Target
) -> list[str]:
    """Return the first constraint that no combination of values satisfies, if there is one that explains it alone."""

    def is_ever_met(rule: Constraint) -> bool:
        combinations = itertools.product(*ranges.values())
        return any(rule.holds(dict(zip(ranges, values, strict=True)), problem, target) for values in combinations)

    return next(([rule.rule] for rule in rules if not is_ever_met(rule)), [])


def _unravelled(indices: NDArray[np.int64], counts: Sequence[int]) -> ValueIndices:
    """Split indices of combinations into value indices; the last parameter changes fastest."""
    value_indices = np.empty((len(indices), len(counts)), dtype=np.uint16)
    for parameter in range(len(counts) - 1, -1, -1):
        indices, value_indices[:, parameter] = np.divmod(indices, counts[parameter])
    return value_indices


def check_config(spec: KernelSpec, problem: Problem, target: Target, config: Config) -> str:
    """Return the rule that the config breaks, or an empty text. Raises `BadConfig` for a config outside the domains."""
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
    """Return whether the config can be passed to the kernel: its names (compile options may be missing) and types are
    those of the space, or it equals the default. Values and rules are not checked: this takes 10 to 50 us."""
    ranges = domains(spec, problem, target)
    named = ranges.keys() - spec.options() <= config.keys() <= ranges.keys()
    if named and all(type(value) in {type(allowed) for allowed in ranges[name]} for name, value in config.items()):
        return True
    return dict(config) == dict(spec.default(problem, target))


def broken_rule(spec: KernelSpec, problem: Problem, target: Target, config: Config) -> str:
    """Return the first rule that the config breaks, or an empty text. Its values must be in their domains."""
    return next((rule.rule for rule in _rules(spec) if not rule.holds(config, problem, target)), "")


def check_tilings(spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> None:
    """Raise `BadSpec` if a config's tiling has a program count that none of its launches has.

    The prior would then predict another kernel than the one that runs. An evenly spaced sample is checked.
    """
    for config in configs[:: max(1, len(configs) // _TILINGS)]:
        tiling = spec.tiling(config, problem)
        grids = [math.prod(launch.grid) for launch in spec.plan(config, problem)]
        if tiling.axes and tiling.programs not in grids:
            axes = ", ".join(f"{axis.programs} along {axis.name}" for axis in tiling.axes)
            values = ", ".join(f"{name}={value}" for name, value in config.items())
            raise BadSpec(
                f"tiling(config, problem) of kernel {spec.name} has {tiling.programs} programs ({axes}) "
                f"for {values}; its grid has {' or '.join(map(str, grids))}"
            )


def domains(spec: KernelSpec, problem: Problem, target: Target) -> dict[str, tuple[Value, ...]]:
    """Return the values of each parameter that exists on the target, each value once."""
    values = {p.name: tuple(dict.fromkeys(p.values(problem, target))) for p in spec.parameters}
    return {name: allowed for name, allowed in values.items() if allowed}


def _rules(spec: KernelSpec) -> tuple[Constraint, ...]:
    def launches(config: Config, problem: Problem, target: Target) -> bool:
        return all(math.prod(launch.grid) <= target.max_programs for launch in spec.plan(config, problem))

    return (*spec.constraints, Constraint("no more programs than the device launches at once", launches))
