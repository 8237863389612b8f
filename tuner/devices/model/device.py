"""`model:PART`: the real compiler in worker processes, the discrete-event clock, Triton's interpreter for results."""

from __future__ import annotations

import ctypes
import hashlib
import json
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewise.db.records import Clock, Status
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.settings import read_settings
from tilewise.tuner.devices.base import Device, Outcome, Timing, Verdict
from tilewise.tuner.devices.model import toolchain
from tilewise.tuner.devices.model.costs import FIGURES, REPEAT_CYCLES, End, costs
from tilewise.tuner.devices.model.hivm import Function, parse
from tilewise.tuner.devices.model.machine import KernelTime, Machine
from tilewise.tuner.devices.model.parts import part as part_named
from tilewise.tuner.devices.model.timeline import UnknownOperation
from tilewise.tuner.interpreter import InterpreterVerifier

__all__ = ["Machines", "ModelDevice", "model_config"]

_MODEL_VERSION = 1
"""Counts changes of the model that move its times; part of the toolchain, as the compilers' versions are."""


class ModelDevice(Device):
    """A modelled Ascend part. Compiling runs in `jobs` processes; outcomes come in order."""

    clock = Clock.MODELLED
    batch = 4

    def __init__(self, part: str, *, jobs: int | None = None, cache_folder: Path | None = None) -> None:
        if reason := toolchain.why_not():
            raise Unavailable(f"model:{part} {reason}")
        settings = read_settings()
        self.part = part_named(part)
        self.id = f"model:{part}"
        self._folder = cache_folder or settings.cache_folder
        self.target = toolchain.target(part, self._folder)
        self.toolchain = f"{toolchain.fingerprint()}, model {_model_fingerprint()}"
        self._jobs = jobs or settings.jobs
        self._pool: ProcessPoolExecutor | None = None
        self._verifier = InterpreterVerifier()

    def evaluate(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> Iterator[Outcome]:
        pool = self._workers()
        futures = [pool.submit(_model_job, spec.origin, problem, dict(c), self.target, self._folder) for c in configs]
        try:
            for future in futures:
                yield future.result()
        except BrokenProcessPool as error:
            raise Unavailable("a compile process died; is the machine out of memory?") from error
        finally:
            for future in futures:
                future.cancel()

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        return self._verifier.verify(spec, problem, config)

    def memory_bytes(self) -> int:
        return self.part.hbm_gib * 2**30

    def floor_us(self, spec: KernelSpec, problem: Problem) -> float:
        fits = sum(buffer.bytes for buffer in spec.buffers(problem).values()) <= self.part.l2_mib * 2**20
        rate = FIGURES["l2_sum_gb_s"].value if fits else self.part.hbm_gb_s * FIGURES["hbm_share"].value
        return spec.bytes(problem) / rate / 1e3

    def warm_up(self) -> None:
        """Start the processes that will be needed, so that they load while others work."""
        self._workers()
        self._verifier.start()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._verifier.close()

    def _workers(self) -> ProcessPoolExecutor:
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._jobs, mp_context=spawn, initializer=_start_worker)
        return self._pool


def _model_fingerprint() -> str:
    table = {name: asdict(figure) for name, figure in {**FIGURES, **REPEAT_CYCLES}.items()}
    digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:8]
    return f"{_MODEL_VERSION}.{digest}"


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it even when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _model_job(origin: str, problem: Problem, config: Config, target: Target, folder: Path) -> Outcome:
    return model_config(registry.load(origin), problem, config, target, folder)[0]


def model_config(
    spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path
) -> tuple[Outcome, Machines | None]:
    """Compile and time one config in this process. Beside the outcome, what is needed to time it at other costs.

    An operation that the model does not know is status `runtime` with its name, never a time.
    """
    try:
        linalg = toolchain.lower(spec, problem, config, target.name)
    except Exception as error:  # the front end raises of every kind; all mean that this config does not compile
        return Outcome(Status.COMPILE, _one_line(error)), None
    multibuffer = bool(config.get("multibuffer", True))
    compiled = toolchain.compile_linalg(linalg, target.name, multibuffer=multibuffer, cache_folder=folder)
    bits: dict[str, int] = {"available": target.on_chip_bytes * 8}
    if compiled.required_bits is not None:
        bits["required"] = compiled.required_bits
    if not compiled.code:
        status = Status.TIMEOUT if compiled.timed_out else Status.COMPILE
        return Outcome(status, compiled.refusal, facts={"on_chip_bits": bits}), None
    function = parse(compiled.code)
    bits["required"] = function.on_chip_bytes() * 8
    facts: dict[str, Any] = {
        "on_chip_bits": bits,
        "effective_options": {
            "multibuffer": multibuffer and "auto-multi-buffer" not in compiled.dropped,
            "code_motion": "code-motion" not in compiled.dropped,
        },
        "double_buffered": function.multi_buffered(),
    }
    machines = Machines(spec, problem, config, target, function)
    try:
        timed = machines.time("value")
    except UnknownOperation as error:
        return Outcome(Status.RUNTIME, str(error), facts=facts), None
    return Outcome(Status.CORRECT, timing=Timing(round(timed.time_us, 4)), facts=facts | timed.to_json()), machines


class Machines:
    """One compiled config on a part, to be timed at each end of the costs' ranges."""

    def __init__(self, spec: KernelSpec, problem: Problem, config: Config, target: Target, function: Function) -> None:
        sizes, self._scalars = toolchain.arguments(spec, problem)
        self._buffers = list(sizes.values())
        self._grid = spec.grid(config, problem)
        self._target, self._function = target, function

    def time(self, end: End) -> KernelTime:
        """Raises `UnknownOperation` where the compiled code holds one."""
        part = part_named(self._target.name)
        machine = Machine(part, self._target.cores, self._function, self._buffers, costs(end))
        return machine.time(self._scalars, self._grid)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
