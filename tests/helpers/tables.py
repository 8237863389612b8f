"""Tables of what the code gives for every kernel at some problems, so that a change shows all that it changes.

Spaces are not enumerated, which would take minutes: of each, some configs are taken, the default and others near it
among them. If a change of a table is meant, write it anew with `python tests/helpers/tables.py` (in the tests'
environment), and say in the commit what changed: the tests' messages do.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from tilewise.kernels import registry
from tilewise.kernels.spec import Buffer, Config, KernelSpec, Problem, Target, Value
from tilewise.tuner.prior.penalties import penalties
from tilewise.tuner.space.search_space import _rules, domains

TARGETS = (
    Target("ascend", "Ascend910B4", 40, 196608, 32, 65535),
    Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90),
    Target("ascend", "Ascend310P3", 8, 262144, 32, 65535),
    Target("nvidia", "NVIDIA L4", 58, 102400, 16, 2**31 - 1, 89),
    Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90),
    Target("ascend", "Ascend910B4", 40, 196608, 32, 65535),
    Target("nvidia", "NVIDIA A100", 108, 167936, 16, 2**31 - 1, 80),
    Target("nvidia", "a GPU", 20, 65536, 16, 2**31 - 1),
)
"""The targets of consecutive problems, again and again."""

PROBLEMS = 32
CONFIGS_PER_PARAMETER = 4
_MOST_STEPS = 100
_PLAIN_PROBLEMS = 16
_SWEPT = [size for power in range(18) for size in (2**power, 2**power + 1)][1:]
"""Sizes on both sides of powers of two, where most limits are."""

SIZES: Mapping[str, tuple[int, ...]] = {
    "M": (1, 2, 5, 17, 64, 65, 256, 300, 1000, 4096, 20_000, 100_003),
    "N": (1, 5, 37, 64, 65, 72, 100, 1000, 1024, 4096, 8192, 11_008, 100_000, 3_000_001, 50_000_000),
    "K": (16, 64, 100, 512, 1000, 4096, 7168),
    "C": (1, 3, 64, 300, 2048),
    "HW": (1, 7, 49, 64, 500, 3136),
    "H": (1, 4, 8, 32, 64, 100),
    "HKV": (1, 4, 8),
    "HALF": (1, 5, 32, 64, 128, 2000),
    "E": (2, 7, 8, 64, 128, 300),
    "G": (1, 3, 8, 64, 300),
    "TOPK": (1, 2, 3, 6, 8),
    "B": (1, 2, 3, 16, 64),
    "Q": (1, 37, 64, 65, 500, 4096),
    "D": (16, 40, 64, 80, 128, 200, 256),
    "PAGES": (1, 7, 64, 512),
    "PAGE": (1, 16, 64),
}
FOLDER = Path(__file__).parents[1] / "golden"


def spaces(name: str) -> list[dict[str, Any]]:
    """Return the arguments, the space, the default, and of some configs the rules, launches and tilings."""
    return [
        {
            "problem": f"{problem} on {target.name}",
            "buffers": {argument: _row(buffer) for argument, buffer in spec.buffers(problem).items()},
            "scalars": dict(spec.scalars(problem)),
            "constants": dict(spec.constants(problem)),
            "needs": [spec.bytes(problem), spec.flops(problem), spec.matrix_dtype and spec.matrix_dtype(problem)],
            "values": {parameter: [*values] for parameter, values in domains(spec, problem, target).items()},
            "default": dict(spec.default(problem, target)),
            "some": [
                [[*config.values()], held, *(_launched(spec, config, problem) if "0" not in held else [])]
                for config, held in _some(spec, problem, target)
            ],
        }
        for spec, problem, target in _problems(name)
    ]


def priors(name: str) -> list[dict[str, Any]]:
    """Return the penalties of some valid configs at each problem, to 9 digits."""
    return [
        {
            "problem": f"{problem} {config} on {target.name}",
            "penalties": {
                penalty: float(f"{factor:.9g}") for penalty, factor in penalties(spec, problem, config, target).items()
            },
        }
        for spec, problem, target in _problems(name)
        for config in [config for config, held in _some(spec, problem, target) if "0" not in held][:8]
    ]


def neighbours(name: str) -> list[dict[str, Any]]:
    """Return valid configs far from the default, their launches, and for each value that each parameter
    may have instead, which rules hold then. At consecutive problems they are of consecutive variants."""
    return [
        {
            "problem": f"{problem} {config} on {target.name}",
            "launched": _launched(spec, config, problem),
            "rules": {
                parameter: [_held(spec, config | {parameter: value}, problem, target) for value in values]
                for parameter, values in domains(spec, problem, target).items()
            },
        }
        for number, (spec, drawn, target) in enumerate(_problems(name))
        for problem in [_rounded(drawn) if number % 3 else drawn]
        for config in _valid(spec, problem, target, number)
    ]


def sweeps(name: str) -> list[dict[str, Any]]:
    """Return the values of parameters and the default as one size goes from 1 up, where they change."""
    spec, made = registry.load(name), list[dict[str, Any]]()
    sizes = {dim: SIZES["M" if dim == "N" and "C" in spec.dims else dim] for dim in spec.dims}
    middle = {dim: known[len(known) // 2] for dim, known in sizes.items()}
    for target, dim in product(TARGETS[:2], [dim for dim in spec.dims if max(sizes[dim]) >= 1000]):
        last: dict[str, Any] | None = None
        for size in _SWEPT:
            problem = Problem(name, middle | {dim: size}, spec.dtypes[0])
            default = _default(spec, problem, target)
            values = None if default is None else {n: [*v] for n, v in domains(spec, problem, target).items()}
            now = {"values": values, "default": default and dict(default)}
            if now != last:
                made.append({"problem": f"{problem} on {target.name}", **now})
                last = now
    return made


TABLES: dict[str, Callable[[str], list[dict[str, Any]]]] = {
    "spaces": spaces,
    "priors": priors,
    "neighbours": neighbours,
    "sweeps": sweeps,
}


def now(table: str, kernel: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = json.loads(json.dumps(TABLES[table](kernel)))  # tuples become lists
    return made


def before(table: str, kernel: str) -> list[dict[str, Any]]:
    return _kept(table)[kernel]


@cache
def _kept(table: str) -> dict[str, list[dict[str, Any]]]:
    made: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress((FOLDER / f"{table}.json.gz").read_bytes()))
    return made


def _problems(name: str) -> Iterator[tuple[KernelSpec, Problem, Target]]:
    """Draw problems; sizes that no config takes are drawn again, up to twice."""
    spec, random = registry.load(name), Random(name)
    for number in range(PROBLEMS):
        target = TARGETS[number % len(TARGETS)]
        for _ in range(3):
            dims = {dim: random.choice(SIZES["M" if dim == "N" and "C" in spec.dims else dim]) for dim in spec.dims}
            flags = {flag.name: random.choice(flag.values) for flag in spec.flags}
            set_flags = {flag.name: flags[flag.name] for flag in spec.flags if flags[flag.name] != flag.values[0]}
            problem = Problem(name, dims, random.choice(spec.dtypes), set_flags)
            default = _default(spec, problem, target)
            if default is not None and "0" not in _held(spec, default, problem, target):
                break
        if default is not None:
            yield spec, problem, target


def _rounded(problem: Problem) -> Problem:
    """Return a problem whose larger sizes are multiples of 64, as some variants need."""
    return problem.resized({dim: size if size < 16 else -(-size // 64) * 64 for dim, size in problem.dims.items()})


def _default(spec: KernelSpec, problem: Problem, target: Target) -> Config | None:
    """Return the default, or nothing where the kernel takes no such sizes: its own tests say what is refused."""
    try:
        return spec.default(problem, target)
    except registry.BadSpec:
        return None


def _some(spec: KernelSpec, problem: Problem, target: Target) -> Iterator[tuple[Config, str]]:
    """Return configs of one to three values other than the default's, and which rules each satisfies."""
    random, ranges = Random(f"{problem} {target}"), domains(spec, problem, target)
    default = dict(spec.default(problem, target))
    yield default, _held(spec, default, problem, target)
    base = default
    for number in range(CONFIGS_PER_PARAMETER * len(spec.parameters)):
        config: dict[str, Value] = dict(base)
        for name in random.sample([*ranges], min(len(ranges), 1 + number % 3)):
            config[name] = random.choice(ranges[name])
        yield config, (held := _held(spec, config, problem, target))
        base = config if "0" not in held else default


def _valid(spec: KernelSpec, problem: Problem, target: Target, number: int) -> Iterator[dict[str, Value]]:
    """Yield a valid config of one variant or, where there are several, of two: which ones goes by the number."""
    words = {name: values for name, values in domains(spec, problem, target).items() if isinstance(values[0], str)}
    variants = [dict(zip(words, chosen, strict=True)) for chosen in product(*words.values())]
    if len(variants) > 2:
        yield from _found(spec, problem, target, variants[(number + 1) % len(variants)])
        yield from _found(spec, problem, target, variants[(number + 2) % len(variants)])
    elif len(variants) > 1 or number < _PLAIN_PROBLEMS:
        yield from _found(spec, problem, target, variants[number // 3 % len(variants)])


def _found(spec: KernelSpec, problem: Problem, target: Target, variant: Mapping[str, Value]) -> list[dict[str, Value]]:
    """Draw other values until a config of a variant is valid; return it, or nothing if none is found."""
    random, ranges = Random(f"{problem} {target} {variant}"), domains(spec, problem, target)
    free = [name for name in ranges if name not in variant]
    config: dict[str, Value] = {name: random.choice(values) for name, values in ranges.items()} | dict(variant)
    held = _held(spec, config, problem, target)
    for _ in range(_MOST_STEPS):
        if "0" not in held:
            return [config]
        changed = config | {name: random.choice(ranges[name]) for name in random.sample(free, 1)}
        after = _held(spec, changed, problem, target)
        if after.count("0") <= held.count("0"):
            config, held = changed, after
    return []


def _held(spec: KernelSpec, config: Config, problem: Problem, target: Target) -> str:
    """Return a digit per rule: 1 if the config satisfies it."""
    return "".join(str(int(rule.holds(config, problem, target))) for rule in _rules(spec))


def _row(buffer: Buffer) -> list[Any]:
    fields = buffer.shape, buffer.dtype, buffer.role, buffer.initial, buffer.draw is not None, buffer.scale
    return [*fields, buffer.strides, buffer.least_bytes, buffer.terms, buffer.tolerance]


def _launched(spec: KernelSpec, config: Config, problem: Problem) -> list[Any]:
    launches = [
        [launch.grid, dict(launch.constants), launch.descriptors, *([dict(launch.blocks)] if launch.blocks else [])]
        for launch in spec.plan(config, problem)
    ]
    scratch = {name: buffer.bytes for name, buffer in spec.scratch(config, problem).items()}
    return [launches, scratch, astuple(spec.tiling(config, problem))]


def write() -> None:
    for table in TABLES:
        made = {name: now(table, name) for name in registry.names()}
        (FOLDER / f"{table}.json.gz").write_bytes(gzip.compress(json.dumps(made).encode(), mtime=0))


if __name__ == "__main__":
    write()
