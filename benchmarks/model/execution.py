"""`tilewise bench execute`: executed programs of every kernel against float64 and Triton's interpreter."""

from __future__ import annotations

import platform
import random
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewise.benchmarks.model.mutations import Finding, study
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config, execute, judge, verify_compiled
from tilewise.tuner.measure.comparison import compare
from tilewise.tuner.measure.draws import DRAWS
from tilewise.tuner.measure.outcome import Verdict
from tilewise.tuner.measure.verify import Arguments
from tilewise.tuner.space.search_space import enumerate_space
from tilewise.tuner.workers.worker import Worker

__all__ = [
    "DIMS",
    "Executed",
    "bench_execute",
    "bench_mutations",
    "execute_config",
    "execution_body",
    "execution_header",
    "headline",
    "mutations_body",
    "reported_as",
    "sample",
]

DIMS: Mapping[tuple[str, ...], Mapping[str, int]] = {
    ("N",): {"N": 20011},
    ("M", "N"): {"M": 77, "N": 1001},
    ("N", "C", "HW"): {"N": 5, "C": 7, "HW": 131},
    ("M", "H", "HALF"): {"M": 23, "H": 5, "HALF": 33},
    ("M", "E", "TOPK"): {"M": 77, "E": 37, "TOPK": 5},
}
"""Dims by a kernel's dimension names: every tile has a tail, and Triton's interpreter can handle them."""

_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Executed:
    """An executed config, with its verdicts against float64 and Triton's interpreter (None: not compared).

    `unbarriered` counts pairs of operations that only the order of their pipe separates.
    """

    kernel: str
    dims: Mapping[str, int]
    dtype: str
    config: Config
    verdict: Verdict
    interpreted: Verdict | None
    unbarriered: int
    seconds: float

    @property
    def fault(self) -> str:
        """The reason of the first disagreement, or an empty text."""
        for verdict in (self.verdict, self.interpreted):
            if verdict is not None and not verdict.agreed:
                return verdict.reason
        return ""

    def to_json(self) -> dict[str, Any]:
        row = asdict(self)
        for key in ("verdict", "interpreted"):
            verdict: Verdict | None = getattr(self, key)
            row[key] = verdict and {name: getattr(verdict, name) for name in ("agreed", "error", "tolerance", "reason")}
        return row | {"seconds": round(self.seconds, 3)}


def sample(
    spec: KernelSpec, problem: Problem, target: Target, folder: Path, count: int, seed: int
) -> list[tuple[Config, Any]]:
    """Return `count` random configs that compile, each with its functions."""
    configs = list(enumerate_space(spec, problem, target).configs)
    random.Random(f"{seed} {spec.name} {problem.dtype}").shuffle(configs)
    found: list[tuple[Config, Any]] = []
    for config in configs:
        if len(found) == count:
            break
        try:
            found.append((config, compile_config(spec, problem, config, target, folder)))
        except (ValueError, subprocess.CalledProcessError):  # it does not fit on chip, or the compiler crashes
            continue
    return found


def execute_config(
    spec: KernelSpec,
    arguments: Arguments,
    problem: Problem,
    config: Config,
    functions: Sequence[Any],
    on_chip_bytes: int,
    interpreter: Worker | None,
) -> Executed:
    """Execute a compiled config and compare its outputs; `interpreter` is a worker of `interpreter_worker:outputs`."""
    began = time.monotonic()
    verdict = judge(spec, problem, config, functions, arguments, on_chip_bytes, draws=DRAWS)
    seconds = time.monotonic() - began
    interpreted, unbarriered = None, 0
    if verdict.agreed:
        arguments.poison()
        tensors = arguments.bind(config)
        unbarriered = len(execute(spec, problem, config, functions, tensors, on_chip_bytes).unbarriered)
        if interpreter is not None:
            interpreted = _against_interpreter(interpreter, problem, config, arguments)
    return Executed(spec.name, problem.dims, problem.dtype, config, verdict, interpreted, unbarriered, seconds)


def _against_interpreter(interpreter: Worker, problem: Problem, config: Config, arguments: Arguments) -> Verdict:
    """Compare the present outputs with the interpreter's, at the tolerance of verification."""
    import torch

    left = interpreter.call(problem.kernel, problem, dict(config), timeout=_SECONDS)
    expected = {name: torch.from_numpy(values) for name, values in left.items()}
    return compare(arguments.outputs, expected, inputs=arguments.largest_input)


def bench_execute(part: str, folder: Path, *, count: int, seed: int, kernels: Sequence[str] = ()) -> Iterator[Executed]:
    """Execute `count` random configs of each kernel, half in float32 and half in another dtype."""
    target = toolchain.target(part, folder)
    interpreter = Worker("tilewise.benchmarks.model.interpreter_worker:outputs", env={"TRITON_INTERPRET": "1"})
    interpreter.start()
    try:
        for name in kernels or registry.vector_names():
            spec = registry.load(name)
            for index, dtype in enumerate(_two(spec, seed)):
                problem = Problem(name, dict(DIMS[spec.dims]), dtype)
                arguments = Arguments(spec, problem)
                for config, functions in sample(spec, problem, target, folder, (count + 1 - index) // 2, seed):
                    yield execute_config(spec, arguments, problem, config, functions, target.on_chip_bytes, interpreter)
    finally:
        interpreter.close()


def _two(spec: KernelSpec, seed: int) -> tuple[str, str]:
    """Return float32 and one of the kernel's 16-bit dtypes."""
    others = [dtype for dtype in spec.dtypes if dtype != "float32"]
    return "float32", random.Random(f"{seed} {spec.name}").choice(others)


def bench_mutations(part: str, folder: Path, *, count: int, seed: int) -> Iterator[Finding]:
    """Try `count` random changes to compiled programs of all kernels."""
    yield from study(count, seed, toolchain.target(part, folder), folder)


def headline(part: str, folder: Path) -> dict[str, Any]:
    """Time verifying the headline config as in tuning, in seconds: the first time in this process, and again."""
    spec = registry.load("row_reduce")
    problem = Problem(spec.name, {"M": 1000, "N": 8192}, "float32")
    config = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}
    target, seconds = toolchain.target(part, folder), []
    for _ in range(2):
        began = time.monotonic()
        verdict = verify_compiled(spec, problem, config, target, folder)
        seconds.append(round(time.monotonic() - began, 2))
    return {"dims": problem.dims, "dtype": problem.dtype, "config": config} | {
        "agreed": verdict.agreed,
        "first_s": seconds[0],
        "again_s": seconds[1],
    }


def execution_body(rows: Sequence[Executed], part: str, seed: int, headline: Mapping[str, Any]) -> dict[str, Any]:
    """Return all rows and their summary as plain JSON values."""
    compared = [row.interpreted for row in rows if row.interpreted is not None]
    summary = {
        "kernels": len({row.kernel for row in rows}),
        "configs": len(rows),
        "agree_with_float64": sum(row.verdict.agreed for row in rows),
        "compared_with_tritons_interpreter": len(compared),
        "agree_with_tritons_interpreter": sum(verdict.agreed for verdict in compared),
        "with_operations_that_only_their_pipe_keeps_apart": sum(row.unbarriered > 0 for row in rows),
        "median_ms": round(statistics.median(row.seconds for row in rows) * 1e3, 1),
        "longest_ms": round(max(row.seconds for row in rows) * 1e3, 1),
    }
    return execution_header(part, seed) | {
        "rows": [row.to_json() for row in rows],
        "headline": dict(headline),
        "summary": summary,
    }


def is_refused(finding: Finding) -> bool:
    """Return whether a change was reported, and as more than a note."""
    return bool(finding.report) and reported_as(finding) != "noted"


def mutations_body(findings: Sequence[Finding], part: str, seed: int) -> dict[str, Any]:
    """Return all changes and their summary as plain JSON values."""
    counting = [finding for finding in findings if finding.counts]
    summary = {
        "changes": len(findings),
        "change_result_or_order": len(counting),
        "of_these_reported": sum(is_refused(finding) for finding in counting),
        "reported_although_nothing_changed": sum(is_refused(f) for f in findings if not f.counts),
    }
    rows = [asdict(finding) | {"counts": finding.counts, "reported_as": reported_as(finding)} for finding in findings]
    return execution_header(part, seed) | {"changes": rows, "summary": summary}


def reported_as(finding: Finding) -> str:
    """Return the kind of the report, by the words that it contains."""
    report = finding.report
    if not report:
        return "nothing"
    for kind, words in _REPORTS.items():
        if any(word in report for word in words):
            return kind
    return "wrong result"


_REPORTS = {
    "race": ("race: ",),
    "noted": ("without a barrier between",),
    "flag": ("deadlock: ", "never waited for"),
    "out of bounds": (" uses element ", " uses bytes ", "bytes of on-chip memory", "not aligned", " picks element "),
    "shapes": ("between memory of shapes", "has operands of shapes"),
}


def execution_header(part: str, seed: int) -> dict[str, Any]:
    """Return everything that the figures depend on."""
    return {
        "part": part,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": platform.python_version(),
        "toolchain": toolchain.fingerprint(),
        "seed": seed,
    }
