"""`tilewise bench right`: the kernels as they are, at odd shapes. Verification must refuse none."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.common.journal import Journal
from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.executor.verification import verify_compiled
from tilewise.tuner.space.search_space import enumerate_space

__all__ = ["ODD_DIMS", "bench_right", "configs_of", "right_body"]

ODD_DIMS: Mapping[tuple[str, ...], Sequence[Mapping[str, int]]] = {
    ("N",): [{"N": 1}, {"N": 3}, {"N": 5003}, {"N": 65537}],
    ("M", "N"): [{"M": 1, "N": 1}, {"M": 1, "N": 301}, {"M": 43, "N": 1}, {"M": 33, "N": 301}, {"M": 7, "N": 4099}],
    ("N", "C", "HW"): [{"N": 1, "C": 1, "HW": 1}, {"N": 5, "C": 7, "HW": 131}, {"N": 2, "C": 3, "HW": 1025}],
    ("M", "H", "HALF"): [
        {"M": 1, "H": 1, "HALF": 1},
        {"M": 7, "H": 3, "HALF": 37},
        {"M": 43, "H": 1, "HALF": 130},
    ],
    ("M", "E", "TOPK"): [{"M": 1, "E": 1, "TOPK": 1}, {"M": 33, "E": 37, "TOPK": 3}, {"M": 43, "E": 130, "TOPK": 8}],
}
"""Odd shapes by a kernel's dimension names: single elements, rows and columns, and tails of every tile."""

_DRAWN = 2
"""Random configs that are verified beside the default."""


def configs_of(spec: KernelSpec, problem: Problem, target: Target) -> list[Config]:
    """Return the default config and some random ones, the same every time."""
    configs = enumerate_space(spec, problem, target).configs
    generator = random.Random(f"{spec.name} {problem.dtype} {dict(problem.dims)}")
    default = spec.default(problem, target)
    drawn = generator.sample(configs, min(_DRAWN, len(configs)))
    return [default, *(config for config in drawn if dict(config) != dict(default))]


def bench_right(part: str, folder: Path, journal: Path, kernels: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield a row per config: those of the journal, then the others as they end."""
    kept, target = Journal(journal), toolchain.target(part, folder)
    known = {_key(row): row for row in kept.rows() if row["part"] == part}
    for name in kernels or registry.vector_names():
        spec = registry.load(name)
        for dtype in spec.dtypes:
            for dims in ODD_DIMS[spec.dims]:
                problem = Problem(name, dict(dims), dtype)
                for config in configs_of(spec, problem, target):
                    row = {"kernel": name, "dims": dict(dims), "dtype": dtype, "config": dict(config), "part": part}
                    if _key(row) not in known:
                        verdict = verify_compiled(spec, problem, config, target, folder)
                        row |= {"outcome": "accepted" if verdict.agreed else _outcome(verdict.status)}
                        row |= {"reason": verdict.reason} if verdict.reason else {}
                        kept.add(row)
                        known[_key(row)] = row
                    yield known[_key(row)]


def _key(row: Mapping[str, Any]) -> str:
    return f"{row['kernel']} {row['dims']} {row['dtype']} {row['config']}"


def _outcome(status: Status) -> str:
    names = {Status.COMPILE: "not compiled", Status.UNMODELLED: "unmodelled"}
    return names.get(status, "refused")


def right_body(rows: Sequence[Mapping[str, Any]], command: str, part: str) -> dict[str, Any]:
    """Return the counts, the rows that were not accepted, and a count of each kernel's."""
    outcomes = Counter(row["outcome"] for row in rows)
    kernels = sorted({row["kernel"] for row in rows})
    summary = {
        "kernels": len(kernels),
        "dtypes": len({row["dtype"] for row in rows}),
        "problems": len({(row["kernel"], str(row["dims"]), row["dtype"]) for row in rows}),
        "configs": len(rows),
        "outcomes": dict(sorted(outcomes.items())),
    }
    return header(command, "modelled", f"model:{part}") | {
        "toolchain": toolchain.fingerprint(),
        "summary": summary,
        "by_kernel": {name: _counts(rows, name) for name in kernels},
        "not_accepted": [dict(row) for row in rows if row["outcome"] != "accepted"],
    }


def _counts(rows: Sequence[Mapping[str, Any]], kernel: str) -> dict[str, int]:
    return dict(sorted(Counter(row["outcome"] for row in rows if row["kernel"] == kernel).items()))
