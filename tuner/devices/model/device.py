"""`model:PART`: the real compiler in worker processes, the discrete-event clock, the compiled program executed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tilewise import errors
from tilewise.db.records import Clock, Status
from tilewise.errors import TilewiseError, Unavailable
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.settings import read_settings
from tilewise.tuner.cores import Cores
from tilewise.tuner.devices.base import Device, Outcome, Timing, Verdict
from tilewise.tuner.devices.model import toolchain
from tilewise.tuner.devices.model.analysis import Analysis, analyse
from tilewise.tuner.devices.model.calibration import calibrated
from tilewise.tuner.devices.model.costs import FIGURES, HBM_CORE_GB_S, REPEAT_CYCLES, Costs, End, costs
from tilewise.tuner.devices.model.hivm import Function, parse
from tilewise.tuner.devices.model.machine import KernelTime, Machine
from tilewise.tuner.devices.model.parts import Part
from tilewise.tuner.devices.model.parts import part as part_named
from tilewise.tuner.devices.model.verification import verify_compiled
from tilewise.tuner.verify import disagreement
from tilewise.tuner.worker import WorkerDied, WorkerError, WorkerFailed, WorkerPool, WorkerTimeout, describe

__all__ = ["Machines", "ModelDevice", "model_config", "model_fingerprint"]

_ENTRY = "tilewise.tuner.devices.model.job:call"
_SECONDS = 600.0  # for one config; the compiler's own limit is shorter
_VERIFY_SECONDS = 60.0
_MEMORY_BYTES = 8 << 30
"""What compiling or executing one config may take; ordinary ones take some hundred megabytes."""

_MACHINE_FAULTS = ("OSError", "FileNotFoundError", "PermissionError", "MemoryError")
"""What a compile process may raise for which no config is to blame."""

_MODEL_VERSION = 6
"""Counts changes of the model that move its times; part of the toolchain, as the compilers' versions are."""


class ModelDevice(Device):
    """A modelled Ascend part. Compiling runs in `jobs` processes, which share the machine's cores with those of
    other tunings; outcomes come in order.

    `cores` are those that a process may use, where that is not all of the part's. With `evicted` times are those of
    runs that find the L2 cache empty, as a chip's timer makes sure; else they are of a kernel called again and again.
    """

    clock = Clock.MODELLED
    batch = 4

    def __init__(
        self,
        part: str,
        *,
        jobs: int | None = None,
        cache_folder: Path | None = None,
        cores: int | None = None,
        evicted: bool = False,
    ) -> None:
        if reason := toolchain.why_not():
            raise Unavailable(f"model:{part} {reason}")
        settings = read_settings()
        self.part = part_named(part)
        self.id = f"model:{part}"
        self._folder = cache_folder or settings.cache_folder
        target = toolchain.target(part, self._folder)
        self.target = replace(target, cores=cores or target.cores)
        self._evicted = evicted
        self.toolchain = f"{toolchain.fingerprint()}, model {model_fingerprint(self.part)}" + ", evicted" * evicted
        self._workers = WorkerPool(
            _ENTRY,
            jobs or settings.jobs,
            env={"TRITON_INTERPRET": None},
            memory_bytes=_MEMORY_BYTES,
            cores=Cores(settings.cache_folder / "cores", max(settings.jobs, len(os.sched_getaffinity(0)))),
        )

    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        """A spec without an origin cannot be found by other processes: it is compiled in this one."""
        if not spec.origin:
            for config in configs:
                yield model_config(spec, problem, config, self.target, self._folder, evicted=self._evicted)[0]
            return
        rest = (self.target, self._folder, self._evicted)
        jobs = [("evaluate", spec.origin, problem, dict(config), *rest) for config in configs]
        futures = [self._workers.submit(*job, timeout=_SECONDS) for job in jobs]
        try:
            for future in futures:
                yield _outcome(future)
        finally:
            for future in futures:
                future.cancel()

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        """Execute the compiled program; a check that fails or ends otherwise than with results is no disagreement."""
        if not spec.origin:
            return verify_compiled(spec, problem, config, self.target, self._folder)
        job = ("verify", spec.origin, problem, dict(config), self.target, self._folder)
        return _verdict(self._workers.submit(*job, timeout=_VERIFY_SECONDS))

    def analyse(self, spec: KernelSpec, problem: Problem, config: Config) -> Analysis:
        """Where the time of a config goes that was found feasible; raises `Unavailable` where it is not."""
        return analyse(spec, problem, config, self.target, self._folder, evicted=self._evicted)

    def interval_us(self, spec: KernelSpec, problem: Problem, config: Config) -> tuple[float, float]:
        """A feasible config's time with all figures at the fast, and at the slow ends of their ranges."""
        outcome, machines = model_config(spec, problem, config, self.target, self._folder, evicted=self._evicted)
        if machines is None:
            raise Unavailable(f"{self.id} has no time for {spec.name}: {outcome.reason}")
        return machines.time("low").time_us, machines.time("high").time_us

    def memory_bytes(self) -> int:
        return self.part.hbm_gib * 2**30

    def floor_us(self, spec: KernelSpec, problem: Problem) -> float:
        fits = sum(buffer.bytes for buffer in spec.buffers(problem).values()) <= self.part.l2_mib * 2**20
        figures = costs(instead=calibrated(self.part.name))
        rate = figures["l2_sum_gb_s"] if fits else self.part.hbm_gb_s * figures["hbm_share"]
        return spec.bytes(problem) / rate / 1e3

    def warm_up(self) -> None:
        """Start the processes that will be needed, so that they load while others work."""
        self._workers.start()

    def close(self) -> None:
        self._workers.close()


def _outcome(future: Future[Any]) -> Outcome:
    """What a compile process made of a config; its death and its silence are outcomes too."""
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
    """What became of executing a config in a compile process."""
    try:
        verdict: Verdict = future.result()
        return verdict
    except WorkerTimeout as error:
        return disagreement(f"executing the program: {error}", status=Status.TIMEOUT)
    except WorkerDied as error:
        return disagreement(f"executing the program: {error}", status=Status.RUNTIME)
    except WorkerFailed as error:
        _blame_no_config(error)
        return disagreement(f"executing the program: {error}", status=Status.RUNTIME)
    except WorkerError as error:
        raise Unavailable(str(error)) from error


def _blame_no_config(error: WorkerFailed) -> None:
    """Raise what is the spec's or the machine's fault."""
    if error.kind in errors.__all__:
        raise getattr(errors, error.kind)(error.message) from error
    if error.kind in _MACHINE_FAULTS:
        raise Unavailable(f"a compile process failed: {error}") from error


def model_fingerprint(part: Part) -> str:
    """The model's version and a digest of all its figures for a part: what a modelled time depends on beside code."""
    fitted = calibrated(part.name)
    figures = {name: asdict(figure) for name, figure in {**FIGURES, **REPEAT_CYCLES, **fitted}.items()}
    table = [figures, HBM_CORE_GB_S, asdict(part)]
    digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:8]
    return f"{_MODEL_VERSION}.{digest}" + (" calibrated" if fitted else "")


def model_config(
    spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path, *, evicted: bool = False
) -> tuple[Outcome, Machines | None]:
    """Compile and time one config in this process. Beside the outcome, what is needed to time it at other costs.

    Of a config with several launches, each is compiled; the first that fails gives the outcome. An operation that the
    model does not know is status `runtime` with its name, never a time. Raises `BadSpec` where the spec is wrong.
    """
    multibuffer = bool(config.get("multibuffer", True))
    compiled = []
    for launch in spec.plan(config, problem):
        try:
            linalg = toolchain.lower(spec, problem, config, launch, target.name)
        except TilewiseError:
            raise
        except Exception as error:  # the front end raises of every kind; all mean that this config does not compile
            return Outcome(Status.COMPILE, describe(error)), None
        made = toolchain.compile_linalg(linalg, target.name, multibuffer=multibuffer, cache_folder=folder)
        if not made.code:
            return _refusal(made, target), None
        compiled.append(made)
    facts: dict[str, Any] = {}
    try:
        functions = [parse(made.code) for made in compiled]
        facts = _facts(functions, {option for made in compiled for option in made.dropped}, multibuffer, target)
        machines = Machines(spec, problem, config, target, functions, evicted=evicted)
        timed = machines.time("value")
    except ValueError as error:  # code that the model does not know, or that cannot run to its end
        return Outcome(Status.RUNTIME, str(error), facts=facts), None
    return Outcome(Status.CORRECT, timing=Timing(round(timed.time_us, 4)), facts=facts | timed.to_json()), machines


def _refusal(compiled: toolchain.Compiled, target: Target) -> Outcome:
    bits = {"available": target.on_chip_bytes * 8}
    if compiled.required_bits is not None:
        bits["required"] = compiled.required_bits
    status = Status.TIMEOUT if compiled.timed_out else Status.COMPILE
    return Outcome(status, compiled.refusal, facts={"on_chip_bits": bits})


def _facts(functions: Sequence[Function], dropped: set[str], multibuffer: bool, target: Target) -> dict[str, Any]:
    """What compiling found; of several launches, the most on-chip memory, and options that held in all of them."""
    required = max(function.on_chip_bytes() for function in functions) * 8
    return {
        "on_chip_bits": {"required": required, "available": target.on_chip_bytes * 8},
        "effective_options": {
            "multibuffer": multibuffer and "auto-multi-buffer" not in dropped,
            "code_motion": "code-motion" not in dropped,
        },
        "double_buffered": any(function.multi_buffered() for function in functions),
    }


class Machines:
    """One compiled config on a part, to be timed at each end of the costs' ranges."""

    def __init__(
        self,
        spec: KernelSpec,
        problem: Problem,
        config: Config,
        target: Target,
        functions: Sequence[Function],
        *,
        evicted: bool = False,
    ) -> None:
        self._part, self._cores, self._evicted = part_named(target.name), target.cores, evicted
        self._steps = []
        for launch, function in zip(spec.plan(config, problem), functions, strict=True):
            sizes, scalars = toolchain.arguments(spec, problem, config, launch)
            self._steps.append((function, list(sizes.values()), scalars, launch.grid))

    def time(self, end: End) -> KernelTime:
        """At an end of the figures' ranges, as calibrated where the part was."""
        return self.time_at(costs(end, calibrated(self._part.name)))

    def time_at(self, chosen: Costs) -> KernelTime:
        """All launches, one after the other. Raises `UnknownOperation` where the compiled code holds one."""
        return KernelTime.in_turn(
            [
                Machine(self._part, self._cores, function, buffers, chosen, evicted=self._evicted).time(scalars, grid)
                for function, buffers, scalars, grid in self._steps
            ]
        )
