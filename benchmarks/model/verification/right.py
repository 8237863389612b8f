"""`tilewise bench right`: the kernels as they are, at odd shapes. Verification must refuse none.

Kernels that multiply matrices are verified in the dtypes that Ascend's cube cores have.
"""

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

__all__ = ["MATRIX_PROBLEMS", "ODD_DIMS", "bench_right", "configs_of", "problems_of", "right_body"]

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

MATRIX_PROBLEMS: Mapping[str, Sequence[tuple[Mapping[str, int], Mapping[str, bool | str]]]] = {
    "gemm": [
        ({"M": 1, "N": 1, "K": 1}, {}),
        ({"M": 1, "N": 301, "K": 67}, {}),
        ({"M": 37, "N": 1, "K": 130}, {"column_major": True}),
        ({"M": 131, "N": 65, "K": 259}, {}),
        ({"M": 33, "N": 77, "K": 45}, {"bias": True, "activation": "gelu"}),
        ({"M": 33, "N": 77, "K": 45}, {"scaled": True, "activation": "silu"}),
    ],
    "grouped_gemm": [
        ({"M": 1, "N": 1, "K": 1, "G": 1}, {}),
        ({"M": 131, "N": 65, "K": 97, "G": 5}, {}),
        ({"M": 33, "N": 77, "K": 45, "G": 9}, {"skewed": True}),
        ({"M": 33, "N": 77, "K": 45, "G": 3}, {"column_major": True}),
    ],
    "fused_moe": [
        ({"M": 1, "E": 3, "N": 1, "K": 1, "TOPK": 1}, {}),
        ({"M": 37, "E": 5, "N": 65, "K": 97, "TOPK": 2}, {}),
        ({"M": 7, "E": 37, "N": 33, "K": 67, "TOPK": 3}, {"skewed": True}),
        ({"M": 19, "E": 7, "N": 33, "K": 67, "TOPK": 2}, {"quant": "int8_w8a8"}),
    ],
    "flash_attention": [
        ({"B": 1, "H": 1, "HKV": 1, "Q": 1, "K": 1, "D": 1}, {}),
        ({"B": 1, "H": 2, "HKV": 1, "Q": 37, "K": 261, "D": 33}, {}),
        ({"B": 2, "H": 4, "HKV": 2, "Q": 65, "K": 129, "D": 64}, {"causal": True}),
        ({"B": 3, "H": 2, "HKV": 2, "Q": 61, "K": 61, "D": 40}, {"packed": True}),
    ],
    "decode_attention": [
        ({"B": 1, "H": 1, "HKV": 1, "PAGES": 1, "PAGE": 1, "D": 1}, {}),
        ({"B": 3, "H": 5, "HKV": 1, "PAGES": 3, "PAGE": 17, "D": 33}, {}),
        ({"B": 2, "H": 12, "HKV": 4, "PAGES": 5, "PAGE": 7, "D": 64}, {}),
    ],
}
"""Odd problems of kernels that multiply matrices: sizes and flags."""

MATRIX_DTYPES = ("bfloat16", "float16", "float32", "int8")
"""Dtypes of products that Ascend's cube cores have."""

_DRAWN = 2
"""Random configs that are verified beside the default."""


def configs_of(spec: KernelSpec, problem: Problem, target: Target) -> list[Config]:
    """Return the default config and some random ones, the same every time."""
    configs = enumerate_space(spec, problem, target).configs
    flags = dict(problem.flags) if problem.flags else ""
    generator = random.Random(f"{spec.name} {problem.dtype} {dict(problem.dims)}{flags}")
    default = spec.default(problem, target)
    drawn = generator.sample(configs, min(_DRAWN, len(configs)))
    return [default, *(config for config in drawn if dict(config) != dict(default))]


def bench_right(part: str, folder: Path, journal: Path, kernels: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield a row per config: those of the journal, then the others as they end."""
    kept, target = Journal(journal), toolchain.target(part, folder)
    known = {_key(row): row for row in kept.rows() if row["part"] == part}
    for name in kernels or (*registry.vector_names(), *MATRIX_PROBLEMS):
        spec = registry.load(name)
        for problem in problems_of(spec):
            for config in configs_of(spec, problem, target):
                row = {"kernel": name, "dims": dict(problem.dims), "dtype": problem.dtype, "config": dict(config)}
                row |= {"part": part} | ({"flags": dict(problem.flags)} if problem.flags else {})
                if _key(row) not in known:
                    verdict = verify_compiled(spec, problem, config, target, folder)
                    row |= {"outcome": "accepted" if verdict.agreed else _outcome(verdict.status)}
                    row |= {"reason": verdict.reason} if verdict.reason else {}
                    kept.add(row)
                    known[_key(row)] = row
                yield known[_key(row)]


def problems_of(spec: KernelSpec) -> Iterator[Problem]:
    """Yield the odd problems of a kernel, in each of its dtypes; of flags that a dtype has not, none."""
    if spec.name not in MATRIX_PROBLEMS:
        yield from (Problem(spec.name, dict(dims), dtype) for dtype in spec.dtypes for dims in ODD_DIMS[spec.dims])
        return
    for dtype in spec.dtypes:
        for dims, flags in MATRIX_PROBLEMS[spec.name] if dtype in MATRIX_DTYPES else ():
            yield Problem(spec.name, dict(dims), dtype, dict(flags))


def _key(row: Mapping[str, Any]) -> str:
    return f"{row['kernel']} {row['dims']} {row['dtype']} {row['config']} {row.get('flags', {})}"


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
        "problems": len({(row["kernel"], str(row["dims"]), row["dtype"], str(row.get("flags"))) for row in rows}),
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
