"""`tilewise bench execute --matrix`: random configs of matrix kernels at random sizes, as compiled, against float64.

Sizes are small and mostly odd, so that every axis has a tail and a case takes seconds. Attention and experts are
executed in float32 too, which their specs do not offer.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.journal import Journal
from tilewise.benchmarks.model.execution import execute_config, execution_header
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config
from tilewise.tuner.measure.verify import Arguments
from tilewise.tuner.space.search_space import enumerate_space

__all__ = ["CASES", "SIZES", "Case", "bench_matrix", "matrix_body"]

_FLOATS = ("float16", "bfloat16", "float32")

SIZES: Mapping[str, Callable[[random.Random], dict[str, int]]] = {
    "gemm": lambda draw: {dim: draw.randint(1, 300) for dim in "MNK"},
    "grouped_gemm": lambda draw: {dim: draw.randint(1, 200) for dim in "MNK"} | {"G": draw.randint(1, 9)},
    "fused_moe": lambda draw: (
        {"M": draw.randint(1, 40), "E": draw.randint(3, 40), "TOPK": draw.randint(1, 3)}
        | {dim: draw.randint(1, 130) for dim in "NK"}
    ),
    "flash_attention": lambda draw: (
        {"B": draw.randint(1, 2), "H": draw.choice([2, 4]), "HKV": draw.choice([1, 2])}
        | {"Q": draw.randint(1, 150), "K": draw.choice([draw.randint(1, 300), 256]), "D": draw.randint(1, 128)}
    ),
    "decode_attention": lambda draw: (
        {"B": draw.randint(1, 4), "H": draw.randint(1, 20), "HKV": 1, "PAGES": draw.randint(1, 5)}
        | {"PAGE": draw.randint(1, 70), "D": draw.randint(1, 128)}
    ),
}
"""Random sizes of each kernel."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel and the circumstances for which random configs are drawn."""

    kernel: str
    dtype: str
    flags: Mapping[str, bool | str]


CASES = (
    *(Case(name, dtype, {}) for name in SIZES for dtype in _FLOATS),
    *(Case(name, "int8", {}) for name in ("gemm", "grouped_gemm")),
    Case("fused_moe", "bfloat16", {"quant": "int8_w8a8"}),
    Case("flash_attention", "float16", {"causal": True}),
)
"""Five kernels in three dtypes each, 8-bit products, and masked attention."""


def bench_matrix(
    part: str,
    folder: Path,
    journal: Path,
    *,
    count: int,
    seed: int,
    cases: Sequence[Case] = CASES,
    minutes: float | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each of `count` random configs of each case that compile, and for those drawn that do not: those
    in the journal, and the others as they are executed. Cases take turns, and none begins a config after `minutes`.

    Each config has sizes of its own, and is executed on inputs drawn in every way.
    """
    target = toolchain.target(part, folder)
    kept = Journal(journal)
    known = {(row["toolchain"], row["draw"]): row for row in kept.rows()}
    until = None if minutes is None else time.monotonic() + 60 * minutes

    def rows(case: Case) -> Iterator[dict[str, Any]]:
        compiled, attempt = 0, 0
        while compiled < count:
            name = f"{part} {seed} {case.kernel} {case.dtype} {sorted(case.flags.items())} {attempt}"
            row = known.get((toolchain.fingerprint(), name))
            if row is None:
                if until is not None and time.monotonic() >= until:
                    return
                row = _row(registry.load(case.kernel), case, random.Random(name), target, folder)
                row |= {"draw": name, "toolchain": toolchain.fingerprint()}
                kept.add(row)
            compiled, attempt = compiled + ("refused" not in row), attempt + 1
            yield row

    yield from _in_turn([rows(case) for case in cases])


def _in_turn(parts: Sequence[Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield one row of each part, then the next of each, until all end."""
    waiting = deque(parts)
    while waiting:
        part = waiting.popleft()
        for row in part:
            yield row
            waiting.append(part)
            break


def _row(spec: KernelSpec, case: Case, draw: random.Random, target: Target, folder: Path) -> dict[str, Any]:
    problem = Problem(spec.name, SIZES[spec.name](draw), case.dtype, case.flags)
    config: Config = draw.choice(enumerate_space(spec, problem, target).configs)
    try:
        functions = compile_config(spec, problem, config, target, folder)
    except (ValueError, subprocess.CalledProcessError) as error:  # it does not fit on chip, or the compiler crashes
        shown = {"kernel": spec.name, "dims": problem.dims, "dtype": case.dtype, "config": config}
        return shown | {"flags": dict(case.flags), "refused": str(error).splitlines()[0]}
    row = execute_config(spec, Arguments(spec, problem), problem, config, functions, target.on_chip_bytes, None)
    return row.to_json() | {"flags": dict(case.flags)}


def matrix_body(
    rows: Sequence[Mapping[str, Any]],
    part: str,
    seed: int,
    count: int,
    cases: Sequence[Case] = CASES,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Return all rows, and how many of those asked for ran and agree in each case, as plain JSON values."""
    executed = [row for row in rows if "refused" not in row]
    limit = "" if minutes is None else f" --minutes {minutes:g}"
    return (
        {"command": f"tilewise bench execute --matrix --count {count} --seed {seed}{limit}"}
        | execution_header(part, seed)
        | {
            "rows": list(rows),
            "summary": {
                "kernels": len({row["kernel"] for row in executed}),
                "configs_asked": count * len(cases),
                "configs": len(executed),
                "agree_with_float64": sum(row["verdict"]["agreed"] for row in executed),
                "not_compiled": len(rows) - len(executed),
                "cases": [asdict(case) | _counts(case, executed) for case in cases],
            },
        }
    )


def _of(case: Case, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if (row["kernel"], row["dtype"], row["flags"]) == (case.kernel, case.dtype, case.flags)]


def _counts(case: Case, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    mine = _of(case, rows)
    return {"configs": len(mine), "agree_with_float64": sum(row["verdict"]["agreed"] for row in mine)}
