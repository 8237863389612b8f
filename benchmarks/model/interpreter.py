"""Verification by Triton's own interpreter, on the CPU, in a separate process.

`TRITON_INTERPRET=1` must be set before a kernel's file is imported, but unset for compiling: hence the process. It is
started once, with about 3 s of imports, which `start` lets run in parallel, and answers until it is closed.
"""

from __future__ import annotations

import math
from typing import Any

from tilewise.db.records import Status
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.measure.comparison import disagreement
from tilewise.tuner.measure.launch import launch
from tilewise.tuner.measure.outcome import Verdict
from tilewise.tuner.measure.verify import Arguments, reduced_problem, verify
from tilewise.tuner.workers.worker import Worker, WorkerDied, WorkerFailed, WorkerTimeout

__all__ = ["InterpreterVerifier", "cheap", "outputs"]

CHEAP_TRIPS = 1280
"""The most trips of the inner loop, over all programs, for which a problem is verified at its own size.

A trip takes about 1.1 ms on a 2-core machine (40 programs of 32 trips: 1.4 s), so this is a second or two.
"""

CHEAP_ELEMENTS = 1 << 24
"""The most elements of the tiled space for which a problem is verified at its own size: about 0.1 us each, in tiles so
large that the work outweighs the interpreter's overhead."""


def cheap(spec: KernelSpec, problem: Problem, config: Config) -> bool:
    """Return whether interpreting the whole problem takes at most a few seconds."""
    tiling = spec.tiling(config, problem)
    elements = math.prod(axis.programs * axis.trips * axis.step for axis in tiling.axes)
    return tiling.programs * tiling.trips <= CHEAP_TRIPS and elements <= CHEAP_ELEMENTS


class InterpreterVerifier:
    """A process that verifies configs of any spec that it can load (`spec.origin`).

    A config is checked on the smallest problem with the same tails, where a lost row or column weighs most, and then
    at the problem's own size if that is cheap.
    """

    def __init__(self, *, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._worker = Worker("tilewise.benchmarks.model.interpreter_worker:check", env={"TRITON_INTERPRET": "1"})

    def start(self) -> None:
        """Start the process and return at once."""
        self._worker.start()

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        """Return the verdict; a crash, an error or a timeout is a disagreement with that reason."""
        if not spec.origin:
            raise UsageError(f"kernel {spec.name} has no origin; load it by name or as path/to/file.py:SPEC")
        try:
            verdict: Verdict = self._worker.call(spec.origin, problem, dict(config), timeout=self._seconds)
        except WorkerTimeout:
            return disagreement(f"the interpreter gave no answer within {self._seconds:g} s", status=Status.TIMEOUT)
        except WorkerDied as error:
            return disagreement(f"the interpreter crashed: {error}", status=Status.RUNTIME)
        except WorkerFailed as error:
            return disagreement(f"the interpreter failed: {error}", status=Status.RUNTIME)
        return verdict

    def close(self) -> None:
        """End the process; a later call starts another."""
        self._worker.close()


def check(origin: str, problem: Problem, config: Config) -> Verdict:
    """Verify a config in the worker process, for `InterpreterVerifier.verify`."""
    spec = registry.load(origin)
    smallest = reduced_problem(spec, problem, config)
    verdict = verify(spec, smallest, config, Arguments(spec, smallest))
    if not verdict.agreed or smallest == problem or not cheap(spec, problem, config):
        return verdict
    return verify(spec, problem, config, Arguments(spec, problem))


def outputs(origin: str, problem: Problem, config: Config) -> dict[str, Any]:
    """Run the config on the inputs of verification and return its outputs as arrays, bfloat16 as float32."""
    import torch

    spec = registry.load(origin)
    arguments = Arguments(spec, problem)
    tensors = arguments.bind(config)
    arguments.poison()
    launch(spec, problem, config, tensors)
    widened = {n: t.float() if t.dtype == torch.bfloat16 else t for n, t in arguments.outputs.items()}
    return {name: tensor.numpy() for name, tensor in widened.items()}
