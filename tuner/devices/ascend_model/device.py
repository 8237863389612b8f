"""`model:PART`: compiles in worker processes, times by the discrete-event clock, verifies by executing the program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewise import errors
from tilewise.db.records import Clock, L2State, Scope, Status
from tilewise.errors import Unavailable
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.executor.verification import verify_compiled
from tilewise.tuner.devices.ascend_model.lint.lint import MIN_SHARE, Lint, lint
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.devices.ascend_model.report.analysis import Analysis, analyse
from tilewise.tuner.devices.base import Device
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.hardware.ascend_parts import part as part_named
from tilewise.tuner.hardware.calibrated_costs import calibrated
from tilewise.tuner.measure.comparison import disagreement
from tilewise.tuner.measure.outcome import Outcome, Verdict
from tilewise.tuner.workers.artefacts import waiting_seconds
from tilewise.tuner.workers.core_slots import CoreSlots
from tilewise.tuner.workers.supervisor import ONE_THREAD
from tilewise.tuner.workers.worker import WorkerDied, WorkerError, WorkerFailed, WorkerPool, WorkerTimeout

__all__ = ["ModelDevice"]

_SECONDS = 600.0  # for one config; the compiler's own limit is shorter
_VERIFY_SECONDS = 180.0
"""Time limit for executing one config; a kernel of nine launches takes half a minute of an idle core."""

_MEMORY_BYTES = 8 << 30
"""Memory limit for compiling or executing one config; ordinary configs take some hundred megabytes."""

_MACHINE_FAULTS = ("OSError", "FileNotFoundError", "PermissionError", "MemoryError")
"""Exceptions of a compile process that no config is to blame for."""


class ModelDevice(Device):
    """A modelled Ascend part. Compiling runs in `jobs` processes, which share the machine's cores with other tunings.

    Outcomes come in the order of the configs. `cores` is the number that a process may use, if fewer than the part
    has. `l2` is the state of the L2 cache before each modelled run.
    """

    clock = Clock.MODELLED
    batch = 4
    entry = "tilewise.tuner.devices.ascend_model.compile_job:call"
    """The function that the compile processes run for each job."""

    def __init__(
        self,
        part: str,
        *,
        jobs: int | None = None,
        cache_folder: Path | None = None,
        cores: int | None = None,
        l2: L2State = L2State.WARM,
    ) -> None:
        if reason := toolchain.unavailable_reason():
            raise Unavailable(f"model:{part} {reason}")
        settings = read_settings()
        self.part = part_named(part)
        self.id = f"model:{part}"
        self._folder = cache_folder or settings.cache_folder
        target = toolchain.target(part, self._folder)
        self.target = replace(target, cores=cores or target.cores)
        self._l2 = l2
        self.toolchain = toolchain.identity(self.part, l2=l2)
        self._workers = WorkerPool(
            self.entry,
            jobs or settings.jobs,
            env={"TRITON_INTERPRET": None, **ONE_THREAD},
            imports=("triton.backends.ascend.compiler", "xdsl.parser", "torch"),  # torch for verifications
            memory_bytes=_MEMORY_BYTES,
            cores=CoreSlots(settings.cache_folder / "cores", max(settings.jobs, len(os.sched_getaffinity(0)))),
        )

    def scope(self, spec: KernelSpec, problem: Problem) -> Scope:
        """Return the scope of the device's trials; those of matrix products depend on the cube core's figures too."""
        scope = super().scope(spec, problem)
        if spec.matrix_dtype is None:
            return scope
        return replace(scope, toolchain=toolchain.with_cube(self.toolchain))

    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        """Yield one outcome per config. Other processes cannot find a spec without an origin: it is compiled here."""
        if not spec.origin:
            for config in configs:
                yield model_config(spec, problem, config, self.target, self._folder, l2=self._l2)[0]
            return
        rest = (self.target, self._folder, self._l2)
        jobs = [("evaluate", spec.origin, problem, dict(config), *rest) for config in configs]
        futures = [self._workers.submit(*job, timeout=_SECONDS + waiting_seconds()) for job in jobs]
        try:
            for future in futures:
                yield _outcome(future)
        finally:
            for future in futures:
                future.cancel()

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        """Execute the compiled program. A check that crashes or takes too long judges nothing: `unmodelled`."""
        if not spec.origin:
            return verify_compiled(spec, problem, config, self.target, self._folder)
        job = ("verify", spec.origin, problem, dict(config), self.target, self._folder)
        return _verdict(self._workers.submit(*job, timeout=_VERIFY_SECONDS + waiting_seconds()))

    def analyse(self, spec: KernelSpec, problem: Problem, config: Config) -> Analysis:
        """Break down the time of a feasible config; raises `Unavailable` if the config is not feasible."""
        return analyse(spec, problem, config, self.target, self._folder, l2=self._l2)

    def lint(
        self,
        spec: KernelSpec,
        problem: Problem,
        config: Config,
        analysis: Analysis | None = None,
        *,
        min_share: float = MIN_SHARE,
    ) -> Lint:
        """Report what a config's compiled code does that costs time. Pass its analysis if there is one.

        Raises `Unavailable` if the config does not compile for another reason than its size.
        """
        timed: Analysis | str = analysis or self._analysed(spec, problem, config)
        floor_us = self.floor_us(spec, problem)
        return lint(spec, problem, config, self.target, self._folder, timed, floor_us, min_share=min_share)

    def _analysed(self, spec: KernelSpec, problem: Problem, config: Config) -> Analysis | str:
        """Return the analysis, or the reason why there is none."""
        try:
            return self.analyse(spec, problem, config)
        except Unavailable as error:
            return str(error.__cause__ or error)

    def memory_bytes(self) -> int:
        return self.part.hbm_gib * 2**30

    def floor_us(self, spec: KernelSpec, problem: Problem) -> float:
        fits = sum(buffer.bytes for buffer in spec.buffers(problem).values()) <= self.part.l2_mib * 2**20
        figures = costs(instead=calibrated(self.part.name))
        if fits and self._l2 is L2State.WARM:
            return spec.bytes(problem) / (self.part.l2_gb_s * figures["l2_share"]) / 1e3
        written = sum(buffer.bytes for buffer in spec.buffers(problem).values() if buffer.role != "in")
        moved = spec.bytes(problem) - (written if fits else 0)
        share = max(figures["read_share"], figures["mixed_share"])
        return moved / (self.part.global_gb_s(0.0 if fits else written / moved) * share) / 1e3

    def warm_up(self) -> None:
        """Start the compile processes, so that they load while other work goes on."""
        self._workers.start()

    def close(self) -> None:
        self._workers.close()


def _outcome(future: Future[Any]) -> Outcome:
    """Return a compile process's outcome for a config; a crash or timeout of the process is an outcome too."""
    try:
        outcome: Outcome = future.result()
        return outcome
    except WorkerTimeout as error:
        return Outcome(Status.TIMEOUT, str(error))
    except WorkerDied as error:
        return Outcome(Status.COMPILE, f"the compiler's front end crashed: {error}")
    except WorkerFailed as error:
        _blame_no_config(error)
        return Outcome(Status.RUNTIME, str(error))
    except WorkerError as error:
        raise Unavailable(str(error)) from error


def _verdict(future: Future[Any]) -> Verdict:
    """Return a compile process's verdict on a config. That the process crashes or takes too long executing the program
    says nothing about the program."""
    try:
        verdict: Verdict = future.result()
        return verdict
    except WorkerFailed as error:
        _blame_no_config(error)
        return disagreement(f"executing the program: {error}", status=Status.UNMODELLED)
    except (WorkerTimeout, WorkerDied) as error:
        return disagreement(f"executing the program: {error}", status=Status.UNMODELLED)
    except WorkerError as error:
        raise Unavailable(str(error)) from error


def _blame_no_config(error: WorkerFailed) -> None:
    """Raise an error that is the fault of the spec or the machine."""
    if error.kind in errors.__all__:
        raise getattr(errors, error.kind)(error.message) from error
    if error.kind in _MACHINE_FAULTS:
        raise Unavailable(f"a compile process failed: {error}") from error
