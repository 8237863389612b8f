"""`tilewise bench execute`: compiled programs of every kernel, against float64 and Triton's own interpreter."""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.bench.mutations import Finding, study
from tilewise.tuner.devices.base import Verdict
from tilewise.tuner.devices.model import toolchain
from tilewise.tuner.devices.model.verification import compile_config, execute, judge
from tilewise.tuner.space import enumerate_space
from tilewise.tuner.verify import Arguments, compare
from tilewise.tuner.worker import Worker

__all__ = ["DIMS", "Executed", "bench_execute", "bench_mutations", "execute_config", "sample"]

DIMS: Mapping[tuple[str, ...], Mapping[str, int]] = {
    ("N",): {"N": 20011},
    ("M", "N"): {"M": 77, "N": 1001},
    ("N", "C", "HW"): {"N": 5, "C": 7, "HW": 131},
}
"""Sizes with tails by every tile, by a kernel's dimensions; small enough for Triton's interpreter."""

_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Executed:
    """One config: the verdict against float64, and against Triton's interpreter (None: not compared).

    `unbarriered` counts pairs of operations that only their pipe's own order keeps apart.
    """

    kernel: str
    dims: Mapping[str, int]
    dtype: str
    config: Config
    verdict: Verdict
    interpreted: Verdict | None
    unbarriered: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        row = asdict(self)
        for key in ("verdict", "interpreted"):
            verdict: Verdict | None = getattr(self, key)
            row[key] = verdict and {"agreed": verdict.agreed, "error": verdict.error, "reason": verdict.reason}
        return row | {"seconds": round(self.seconds, 3)}


def sample(
    spec: KernelSpec, problem: Problem, target: Target, folder: Path, count: int, seed: int
) -> list[tuple[Config, Any]]:
    """So many random configs that compile, each with its functions."""
    configs = list(enumerate_space(spec, problem, target).configs)
    random.Random(f"{seed} {spec.name} {problem.dtype}").shuffle(configs)
    found: list[tuple[Config, Any]] = []
    for config in configs:
        if len(found) == count:
            break
        try:
            found.append((config, compile_config(spec, problem, config, target, folder)))
        except ValueError:  # it does not fit on chip
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
    """Execute a compiled config; `interpreter` is a process that runs `interpreter_worker:outputs`."""
    began = time.monotonic()
    verdict = judge(spec, problem, config, functions, arguments, on_chip_bytes)
    seconds = time.monotonic() - began
    interpreted, unbarriered = None, 0
    if verdict.agreed:
        if interpreter is not None:
            interpreted = _against_interpreter(interpreter, problem, config, arguments)
        arguments.poison()
        unbarriered = len(execute(spec, problem, config, functions, arguments.bind(config), on_chip_bytes))
    return Executed(spec.name, problem.dims, problem.dtype, config, verdict, interpreted, unbarriered, seconds)


def _against_interpreter(interpreter: Worker, problem: Problem, config: Config, arguments: Arguments) -> Verdict:
    """The outputs as they stand, compared with the interpreter's at the tolerance of verification."""
    import torch

    left = interpreter.call(problem.kernel, problem, dict(config), timeout=_SECONDS)
    return compare(arguments.outputs, {name: torch.from_numpy(values) for name, values in left.items()})


def bench_execute(part: str, folder: Path, *, count: int, seed: int, kernels: Sequence[str] = ()) -> Iterator[Executed]:
    """`count` random configs of each kernel, float32 and another dtype in turn."""
    target = toolchain.target(part, folder)
    interpreter = Worker("tilewise.tuner.interpreter_worker:outputs", env={"TRITON_INTERPRET": "1"})
    interpreter.start()
    try:
        for name in kernels or registry.names():
            spec = registry.load(name)
            for place, dtype in enumerate(_two(spec, seed)):
                problem = Problem(name, dict(DIMS[spec.dims]), dtype)
                arguments = Arguments(spec, problem)
                for config, functions in sample(spec, problem, target, folder, (count + 1 - place) // 2, seed):
                    yield execute_config(spec, arguments, problem, config, functions, target.on_chip_bytes, interpreter)
    finally:
        interpreter.close()


def _two(spec: KernelSpec, seed: int) -> tuple[str, str]:
    """float32 and one of the kernel's 16-bit dtypes."""
    others = [dtype for dtype in spec.dtypes if dtype != "float32"]
    return "float32", random.Random(f"{seed} {spec.name}").choice(others)


def bench_mutations(part: str, folder: Path, *, count: int, seed: int) -> Iterator[Finding]:
    """`count` random changes to compiled programs of all kernels."""
    yield from study(count, seed, toolchain.target(part, folder), folder)


def header(part: str) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "part": part,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": platform.python_version(),
        "toolchain": toolchain.fingerprint(),
    }
