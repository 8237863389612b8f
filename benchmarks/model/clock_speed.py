"""`tilewise bench clock`: processor time to compile a config and to time it on the modelled part."""

from __future__ import annotations

import random
import resource
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.db.records import Status
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.space.search_space import enumerate_space

__all__ = ["PROBLEMS", "bench_clock"]

PROBLEMS = (
    Problem("gemm", {"M": 4096, "N": 4096, "K": 4096}, "float16"),
    Problem("flash_attention", {"B": 2, "H": 16, "HKV": 16, "Q": 2048, "K": 2048, "D": 128}, "float16"),
    Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"),
)
_AIMS_S = {"gemm": 0.6, "flash_attention": 2.0}
"""Seconds a config at the median, on one core."""


def bench_clock(
    part: str,
    *,
    count: int,
    seed: int,
    problems: Sequence[Problem] = PROBLEMS,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Compile and time `count` random configs of each problem with an empty cache, and return the JSON.

    Raises `Unavailable` if the Ascend toolchain is not installed.
    """
    if reason := toolchain.unavailable_reason():
        raise Unavailable(f"bench clock {reason}")
    with tempfile.TemporaryDirectory() as folder:
        target = toolchain.target(part, Path(folder))
        rows = [_row(problem, target, Path(folder), count, seed, progress) for problem in problems]
    command = f"tilewise bench clock --count {count} --seed {seed}"
    return {**header(command, "modelled"), "toolchain": toolchain.fingerprint(), "part": part, "rows": rows}


def _row(
    problem: Problem, target: Target, folder: Path, count: int, seed: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    spec = registry.load(problem.kernel)
    configs = list(enumerate_space(spec, problem, target).configs)
    random.Random(seed).shuffle(configs)
    _seconds(spec, problem, configs.pop(), target, folder)  # imports what all need
    found: list[float] = []
    while configs and len(found) < count:
        progress(f"{problem.kernel} {len(found) + 1} of {count}")
        if (seconds := _seconds(spec, problem, configs.pop(), target, folder)) is not None:
            found.append(seconds)
    row: dict[str, Any] = {"problem": str(problem), "configs": len(found)}
    if found:
        row |= {"median_s": round(statistics.median(found), 3), "most_s": round(max(found), 3)}
    return row | ({"aim_s": _AIMS_S[problem.kernel]} if problem.kernel in _AIMS_S else {})


def _seconds(spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path) -> float | None:
    """Return the processor time of this process and its children; None for a config that gets no time."""
    began = _spent()
    outcome, _ = model_config(spec, problem, config, target, folder)
    return _spent() - began if outcome.status is Status.CORRECT else None


def _spent() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
