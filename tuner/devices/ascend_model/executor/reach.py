"""The addresses of a problem that is too large to execute.

A few of its programs, from the first to the last, run on buffers of which only the ends are known. An index in a type
that is too narrow shows there, and on no smaller problem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.executor.executor import Executor
from tilewise.tuner.devices.ascend_model.executor.hazards import Unvalued
from tilewise.tuner.devices.ascend_model.executor.memory import Array, Fault, Unfilled
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation

__all__ = ["fault_at_size"]

_PROGRAMS = 16
"""Programs of a launch that are executed, evenly spaced."""


def fault_at_size(
    spec: KernelSpec, problem: Problem, config: Config, functions: Sequence[Function], on_chip_bytes: int
) -> str:
    """Return the fault of the first launch that has one, or an empty text.

    Passed over are launches on a cube core and vector cores together, those in which whole numbers from memory may
    become addresses, and those that the executor cannot run without data.
    """
    for launch, function in zip(spec.plan(config, problem), functions, strict=True):
        if function.vector or any(_loads_whole_number(op) for op in function.walk()):
            continue
        sizes, scalars = toolchain.arguments(spec, problem, config, launch)
        executor = Executor(function, on_chip_bytes, order=Unvalued)
        buffers = {name: Unfilled(name, size) for name, size in sizes.items()}
        try:
            executor.run(buffers, scalars, launch.grid, _spread(math.prod(launch.grid)))
        except Fault as fault:
            return str(fault)
        except (UnknownOperation, ValueError, IndexError):
            continue
    return ""


def _loads_whole_number(op: Op) -> bool:
    return op.name == "memref.load" and str(op.result_type).startswith("i")


def _spread(programs: int) -> Array:
    """Return the numbers of some programs, the first and the last among them."""
    numbers: Array = np.unique(np.linspace(0, programs - 1, _PROGRAMS).astype(np.int64))
    return numbers
