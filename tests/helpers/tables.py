"""Tables of what the code gives for every kernel at a few problems, so that a change shows all that it changes.

If a change of a table is meant, write it anew with `python tests/helpers/tables.py` (in the tests' environment), and
say in the commit what changed: the tests' messages do.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.prior.penalties import penalties
from tilewise.tuner.space.search_space import Space, enumerate_space

TARGETS = (
    Target("ascend", "Ascend910B4", 40, 196608, 32, 65535),
    Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90),
)
SIZES: tuple[tuple[str, dict[str, int]], ...] = (
    ("float32", {"M": 5, "N": 37, "K": 100, "C": 3, "HW": 7, "H": 3, "HALF": 5, "E": 7, "TOPK": 3}),
    ("bfloat16", {"M": 1000, "N": 8192, "K": 4096, "C": 64, "HW": 3136, "H": 32, "HALF": 64, "E": 64, "TOPK": 6}),
    ("float32", {"M": 17, "N": 100_000, "K": 512, "C": 300, "HW": 64, "H": 100, "HALF": 2000, "E": 300, "TOPK": 8}),
    ("float16", {"M": 20_000, "N": 72, "K": 1, "C": 2048, "HW": 1, "H": 1, "HALF": 128, "E": 128, "TOPK": 8}),
    ("float32", {"M": 1, "N": 3_000_001, "K": 64, "C": 1, "HW": 500, "H": 8, "HALF": 1, "E": 8, "TOPK": 2}),
)
ATTENTION: tuple[dict[str, int], ...] = (
    {"B": 3, "H": 6, "HKV": 2, "Q": 37, "D": 64, "PAGES": 7, "PAGE": 16},
    {"B": 4, "H": 32, "HKV": 8, "Q": 4096, "D": 128, "PAGES": 512, "PAGE": 16},
    {"B": 1, "H": 4, "HKV": 4, "Q": 1000, "D": 80, "PAGES": 4096, "PAGE": 64},
    {"B": 64, "H": 64, "HKV": 8, "Q": 1, "D": 40, "PAGES": 256, "PAGE": 16},
    {"B": 2, "H": 5, "HKV": 1, "Q": 500, "D": 256, "PAGES": 1, "PAGE": 1},
)
"""Sizes of attention in the same five rounds; its heads are shared, so that they must divide one another."""
FOLDER = Path(__file__).parents[1] / "golden"


def spaces(name: str) -> list[dict[str, Any]]:
    """Return the space, default, needs, launches and tilings at each problem."""
    return [
        {
            "problem": f"{problem} on {target.name}",
            "configs": len(space),
            "values": {parameter: [*values] for parameter, values in space.domains.items()},
            "default": dict(spec.default(problem, target)),
            "needs": [spec.bytes(problem), spec.flops(problem)],
            "some": [_launched(spec, config, problem) for config in _some(spec, problem, space, target)],
        }
        for spec, problem, target, space in _problems(name)
    ]


def priors(name: str) -> list[dict[str, Any]]:
    """Return the penalties of some configs at each problem, to 9 digits."""
    return [
        {
            "problem": f"{problem} {config} on {target.name}",
            "penalties": {
                penalty: float(f"{factor:.9g}") for penalty, factor in penalties(spec, problem, config, target).items()
            },
        }
        for spec, problem, target, space in _problems(name)
        for config in _some(spec, problem, space, target)
    ]


TABLES: dict[str, Callable[[str], list[dict[str, Any]]]] = {"spaces": spaces, "priors": priors}


def now(table: str, kernel: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = json.loads(json.dumps(TABLES[table](kernel)))  # tuples become lists
    return made


def before(table: str, kernel: str) -> list[dict[str, Any]]:
    known: list[dict[str, Any]] = json.loads(gzip.decompress((FOLDER / f"{table}.json.gz").read_bytes()))[kernel]
    return known


def _problems(name: str) -> Iterator[tuple[KernelSpec, Problem, Target, Space]]:
    spec = registry.load(name)
    for target in TARGETS:
        for (dtype, plain), attention in zip(SIZES, ATTENTION, strict=True):
            sizes = plain | {"G": plain["E"]} | (attention if "HKV" in spec.dims else {})
            dims = {dim: sizes["M" if dim == "N" and "C" in spec.dims else dim] for dim in spec.dims}
            for chosen in dict.fromkeys((dtype if dtype in spec.dtypes else spec.dtypes[0], spec.dtypes[0])):
                problem = Problem(name, dims, chosen)
                try:
                    yield spec, problem, target, enumerate_space(spec, problem, target)
                    break
                except NothingFeasible:
                    continue  # the kernel's own tests say what is refused, and why


def _some(spec: KernelSpec, problem: Problem, space: Space, target: Target) -> list[Config]:
    count = min(8, len(space))
    return [spec.default(problem, target), *(space.configs[math.floor(len(space) * at / count)] for at in range(count))]


def _launched(spec: KernelSpec, config: Config, problem: Problem) -> list[Any]:
    launches = [[launch.grid, dict(launch.constants)] for launch in spec.plan(config, problem)]
    scratch = {name: buffer.bytes for name, buffer in spec.scratch(config, problem).items()}
    tiling = spec.tiling(config, problem)
    return [dict(config), launches, scratch, astuple(tiling)[: None if tiling.dot else -1]]


def write() -> None:
    for table in TABLES:
        made = {name: now(table, name) for name in registry.names()}
        (FOLDER / f"{table}.json.gz").write_bytes(gzip.compress(json.dumps(made).encode(), mtime=0))


if __name__ == "__main__":
    write()
