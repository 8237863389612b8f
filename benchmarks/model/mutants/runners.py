"""Devices on which mutants are verified and run: a modelled part, and an NVIDIA GPU. One process tries one mutant."""

from __future__ import annotations

import functools
import os
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.db.records import Status
from tilewise.errors import UsageError
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.executor.memory import Fault
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config, execute, verify_compiled
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.measure.comparison import disagreement
from tilewise.tuner.measure.draws import DRAWS
from tilewise.tuner.measure.launch import compiled, launch
from tilewise.tuner.measure.outcome import Verdict
from tilewise.tuner.measure.verify import Arguments, verify
from tilewise.tuner.workers.worker import describe

if TYPE_CHECKING:
    pass

__all__ = ["CudaRunner", "ModelRunner", "Runner", "Unusable", "runner"]


class Unusable(Exception):
    """A config that does not compile, or that the model cannot judge."""


class Runner(ABC):
    """A device. `place` is where torch keeps its tensors, `toolchain` names the versions."""

    target: Target
    place: str
    toolchain: str

    @abstractmethod
    def code(self, spec: KernelSpec, problem: Problem, config: Config) -> tuple[str, ...]:
        """Return text that is the same for kernels that run the same; raises `Unusable`."""

    @abstractmethod
    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        """Verify as a tuning on this device does."""

    @abstractmethod
    def run(self, spec: KernelSpec, problem: Problem, config: Config, arguments: Arguments) -> None:
        """Run the config on these tensors; raises `Unusable`, or `Fault` for accesses that no right kernel makes."""


class ModelRunner(Runner):
    place = "cpu"

    def __init__(self, part: str, folder: Path) -> None:
        self.target, self._folder = toolchain.target(part, folder), folder
        self.toolchain = toolchain.fingerprint()

    def code(self, spec: KernelSpec, problem: Problem, config: Config) -> tuple[str, ...]:
        try:
            plan = spec.plan(config, problem)
            return tuple(toolchain.lower(spec, problem, config, step, self.target.name) for step in plan)
        except Exception as error:  # the front end raises exceptions of any type
            raise Unusable(describe(error)) from error

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        return verify_compiled(spec, problem, config, self.target, self._folder)

    def run(self, spec: KernelSpec, problem: Problem, config: Config, arguments: Arguments) -> None:
        tensors = arguments.bind(config)
        arguments.poison()
        try:
            functions = compile_config(spec, problem, config, self.target, self._folder)
            execute(spec, problem, config, functions, tensors, self.target.on_chip_bytes)
        except Fault:
            raise
        except UnknownOperation as error:
            raise Unusable(str(error)) from error
        except Exception as error:
            raise Unusable(describe(error)) from error


class CudaRunner(Runner):
    def __init__(self, index: int) -> None:
        import torch

        from tilewise.tuner.devices.cuda.accelerator import identity

        self.place = f"cuda:{index}"
        torch.cuda.set_device(index)
        self.target, self.toolchain = identity(torch.cuda.get_device_properties(index))

    def code(self, spec: KernelSpec, problem: Problem, config: Config) -> tuple[str, ...]:
        try:
            return tuple(_without_places(kernel.asm["ptx"]) for kernel in compiled(spec, problem, config))
        except Exception as error:
            raise Unusable(describe(error)) from error

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        arguments = Arguments(spec, problem, device=self.place)
        try:
            return verify(spec, problem, config, arguments, draws=DRAWS)
        except RuntimeError as error:
            _end_process_if_lost(error)
            return disagreement(describe(error), status=Status.RUNTIME)

    def run(self, spec: KernelSpec, problem: Problem, config: Config, arguments: Arguments) -> None:
        import torch

        arguments.bind(config)
        arguments.poison()
        try:
            launch(spec, problem, config, arguments.bind(config))
            torch.cuda.synchronize()
        except RuntimeError as error:
            _end_process_if_lost(error)
            raise Fault(describe(error)) from error
        if (damage := arguments.damage()) is not None:
            raise Fault(damage)


def _end_process_if_lost(error: RuntimeError) -> None:
    """End this process if the error, an illegal access, has left it without a usable GPU: every later call would fail
    too, and count as refused. The study takes the end for the mutant's."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        print(describe(error), file=sys.stderr, flush=True)
        os._exit(70)


def _without_places(ptx: str) -> str:
    kept = (line for line in ptx.splitlines() if not line.strip().startswith((".loc", ".file", "//", "$L__")))
    return "\n".join(kept).partition(".section")[0]


@functools.cache
def runner(device: str, folder: Path) -> Runner:
    """Return the runner of a device id; raises `UsageError` for a device that cannot run mutants."""
    kind, _, rest = device.partition(":")
    if kind == "model":
        return ModelRunner(rest, folder)
    if kind == "cuda":
        return CudaRunner(int(rest or 0))
    raise UsageError(f"mutants run on model:PART and cuda, not on {device}")
