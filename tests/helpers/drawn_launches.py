"""Small problems and configs of a kernel that differ in all that its code may treat apart: variants, tails, flags."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import combinations, islice
from random import Random
from typing import Any

from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.space.search_space import _rules, domains

TARGETS = (
    Target("ascend", "Ascend910B4", 40, 196608, 32, 65535),
    Target("nvidia", "NVIDIA A100", 108, 167936, 16, 2**31 - 1, 80),
)
SIZES = {
    "M": (1, 2, 5, 17, 33),
    "N": (1, 5, 37, 64, 100, 128, 600, 3000),
    "K": (16, 64, 100, 128, 256),
    "C": (1, 3, 7),
    "HW": (1, 7, 49, 64),
    "H": (1, 4, 8),
    "HKV": (1, 2, 4),
    "HALF": (1, 5, 32),
    "E": (2, 7, 8),
    "G": (1, 3, 4),
    "TOPK": (1, 2, 3),
    "B": (1, 2, 3),
    "Q": (1, 20, 37, 150),
    "D": (16, 40, 64),
    "PAGES": (1, 3),
    "PAGE": (1, 16),
}
CANDIDATES, MOST_TRIPS, MOST_ELEMENTS = 150, 10, 1 << 15

Case = tuple[Problem, Config]


def drawn(name: str, count: int) -> list[Case]:
    """Return cases, each the one of those drawn that has most features, or pairs of them, that none before it has."""
    spec = registry.load(name)
    left = {number: (case, _features(spec, *case)) for number, case in enumerate(islice(_cases(spec), CANDIDATES))}
    seen: set[Any] = set()
    chosen = []
    while left and len(chosen) < count:
        number = max(left, key=lambda number: (len(left[number][1] - seen), -number))
        case, features = left.pop(number)
        seen |= features
        chosen.append(case)
    return chosen


def _cases(spec: KernelSpec) -> Iterator[Case]:
    random = Random(spec.name)
    for number in range(50 * CANDIDATES):
        target = TARGETS[number % len(TARGETS)]
        dims, others = ({dim: random.choice(_sizes(spec, dim)) for dim in spec.dims} for _ in range(2))
        flags = {flag.name: random.choice(flag.values) for flag in spec.flags}
        set_flags = {flag.name: flags[flag.name] for flag in spec.flags if flags[flag.name] != flag.values[0]}
        problem = Problem(spec.name, dims, random.choice(spec.dtypes), set_flags)
        tiled = problem if number % 3 else replace(problem, dims=others)  # a config may be of another problem
        try:
            config = {name: random.choice(values) for name, values in domains(spec, tiled, target).items()}
        except (registry.BadSpec, IndexError):  # the kernel takes no such sizes
            continue
        if (spec.name, config.get("VARIANT")) == ("topk_gating", "sorted"):  # needs a Triton that has Gluon
            continue
        if all(rule.holds(config, problem, target) for rule in _rules(spec)) and _is_small(spec, problem, config):
            yield problem, config


def _sizes(spec: KernelSpec, dim: str) -> Sequence[int]:
    return SIZES["M" if dim == "N" and "C" in spec.dims else dim]


def _is_small(spec: KernelSpec, problem: Problem, config: Config) -> bool:
    tiling = spec.tiling(config, problem)
    computed = math.prod(axis.programs * axis.trips * axis.step for axis in tiling.axes)
    return tiling.programs * tiling.trips <= MOST_TRIPS and computed <= MOST_ELEMENTS


def _features(spec: KernelSpec, problem: Problem, config: Config) -> Set[Any]:
    single = {f"{name}={value}" for name, value in config.items() if isinstance(value, str | bool)}
    for launch in spec.plan(config, problem):
        single |= {f"{launch.function} {name}={value}" for name, value in launch.constants.items()}
    single |= {f"one {dim}" for dim, size in problem.dims.items() if size == 1}
    single |= {problem.dtype, *(f"{name}={value}" for name, value in problem.flags.items())}
    for axis in spec.tiling(config, problem).axes:
        last = axis.size - (axis.programs - 1) * axis.block
        tails = axis.programs > 1, axis.trips > 1, axis.size < axis.step, axis.taken % axis.step > 0, last < axis.taken
        single |= {f"{axis.name} {tails}"}
    return single | set(combinations(sorted(single), 2))
