"""Compiling for an NVIDIA GPU ahead of the launch, in processes that never touch a GPU.

Each process compiles into Triton's cache on disk, where the launch in the bench process finds the binary. A compiler
that crashes or hangs costs only its own config.
"""

from __future__ import annotations

import time
from typing import Any

from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, Problem
from tilewise.tuner.devices.measured.shared_binaries import shared_binaries
from tilewise.tuner.measure.launch import compiled

__all__ = ["ENTRY", "compile_config", "status"]

ENTRY = "tilewise.tuner.devices.cuda.compile:compile_config"


_COMPILE_ERRORS = {
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "PTXASError",
    "MLIRCompilationError",
}
_LIMIT_ERRORS = {"OutOfResources"}


def status(kind: str) -> Status:
    """Return the status of a config whose compilation or launch raised an exception of that name."""
    if kind in _LIMIT_ERRORS:
        return Status.CONSTRAINTS
    return Status.COMPILE if kind in _COMPILE_ERRORS else Status.RUNTIME


class _Target:
    """The part of a Triton driver that compilation needs."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_config(origin: str, problem: Problem, config: Config, capability: int) -> dict[str, float]:
    """Compile for compute capability `capability` (90 for 9.0) and return facts.

    They are the binary's shared memory in bytes and the wall seconds that this process took, near 0 if Triton's cache
    held the binary.
    """
    from triton.runtime.driver import driver

    driver.set_active(_Target(capability))
    spec = registry.load(origin)
    began = time.perf_counter()
    with shared_binaries("cuda", ENTRY, origin, problem, config, capability):
        kernels = list(compiled(spec, problem, config))
    seconds = time.perf_counter() - began
    return {"shared_bytes": max(int(k.metadata.shared) for k in kernels), "compile_s": round(seconds, 4)}
