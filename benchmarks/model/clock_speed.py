"""`python -m tilewise.benchmarks.model.clock_speed [KERNEL]...`: the cost of timing a config on the modelled part.

Times the headline problem's published configs, and the default of each kernel (of all, or of those named) at its
largest shape. Each is timed three times in this process, without compiling, and the median is reported in milliseconds.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.cases import SHAPES
from tilewise.benchmarks.common.script import script
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.model_config import model_config

__all__ = ["main"]

_PART = "Ascend910B4"
_HEADLINE = [(50, 25, 256), (25, 4, 2048), (25, 25, 256), (20, 20, 256)]


def main(kernels: Sequence[str]) -> None:
    modelled = [name for name in SHAPES if name in registry.vector_names()]
    if unknown := sorted(set(kernels) - set(modelled)):
        raise UsageError(f"no shapes to time {', '.join(unknown)} at; expected {', '.join(modelled)}")
    with tempfile.TemporaryDirectory() as folder:
        rows = [_row(Path(folder), problem, config) for problem, config in _cases(Path(folder), kernels)]
    json.dump({"part": _PART, "toolchain": toolchain.fingerprint(), "rows": rows}, sys.stdout, indent=1)
    print()


def _cases(folder: Path, kernels: Sequence[str]) -> list[tuple[Problem, Config]]:
    names = ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N")
    headline = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
    cases: list[tuple[Problem, Config]] = [
        (headline, {**dict(zip(names, sizes, strict=True)), "multibuffer": True}) for sizes in _HEADLINE
    ]
    target = toolchain.target(_PART, folder)
    for name in kernels or SHAPES:
        problem = Problem(name, max(SHAPES[name], key=lambda dims: math.prod(dims.values())), "float32")
        cases.append((problem, registry.load(name).default(problem, target)))
    return cases


def _row(folder: Path, problem: Problem, config: Config) -> dict[str, Any]:
    spec = registry.load(problem.kernel)
    row: dict[str, Any] = {"kernel": spec.name, "dims": dict(problem.dims), "config": dict(config)}
    outcome, machines = model_config(spec, problem, config, toolchain.target(_PART, folder), folder)
    if machines is None:
        return row | {"reason": outcome.reason}
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        machines.time("value")
        taken.append((time.perf_counter() - began) * 1e3)
    return row | {"ms": round(statistics.median(taken), 1)}


if __name__ == "__main__":
    with script():
        main(sys.argv[1:])
