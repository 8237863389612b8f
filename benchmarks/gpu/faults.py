"""`tilewise bench faults`: a tuning in which some configs crash, hang or compute wrongly.

The sound configs are first timed alone, twice, which shows how much times differ from run to run. Then all configs are
tuned together. Afterwards every sound config must have a time as before and every faulty one its own reason, and
nothing may be left behind: no process, no lock, no temporary file.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewise.db.records import Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.kernels.spec import Axis, Buffer, Config, KernelSpec, Launch, Parameter, Problem, Tensors, Tiling
from tilewise.settings import read_settings
from tilewise.tuner.devices.cuda import compile as cuda_compile
from tilewise.tuner.devices.cuda.accelerator import CudaRuntime
from tilewise.tuner.devices.cuda.device import CudaDevice
from tilewise.tuner.devices.measured.device import Limits, MeasuredDevice
from tilewise.tuner.measure.outcome import FAULTS, LAST_LINES
from tilewise.tuner.tuning.loop import Budget, Tuning, Watcher

__all__ = ["PROBLEM", "SPEC", "Expected", "FaultyRuntime", "bench_faults", "compile_config", "inject", "mixed"]

FAULT = "FAULT"
PROBLEM = Problem("fault_injection", {"M": 4096, "N": 4096}, "float32")


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected record of a fault: one of `statuses`, with one of `words` in the reason. `verified` faults are
    detected only when a config that would lead is verified."""

    statuses: frozenset[Status]
    words: tuple[str, ...]
    verified: bool = False


def _as(status: Status, *words: str, verified: bool = False) -> Expected:
    return Expected(frozenset([status]), words, verified)


ON_DEVICE = {
    "endless loop": _as(Status.TIMEOUT, "no answer within"),
    "illegal address": _as(Status.RUNTIME, "illegal memory access", "illegal address"),
    "misaligned address": _as(Status.RUNTIME, "misaligned address"),
    "trap": _as(Status.RUNTIME, "unspecified launch failure", "illegal instruction", "trap"),
    "writes out of bounds": _as(Status.CORRECTNESS, "wrote outside the tensor"),
    "writes to its input": _as(Status.CORRECTNESS, "wrote to its input"),
    "leaves a part unwritten": _as(Status.CORRECTNESS, "never written"),
    "returns NaN": _as(Status.CORRECTNESS, "nan"),
    "right on one input only": _as(Status.CORRECTNESS, "off by", verified=True),
    "does not compile": _as(Status.COMPILE, "not this config"),
}
"""Faults of the kernel itself."""

IN_PROCESS = {
    "segfault": _as(Status.RUNTIME, "SIGSEGV"),
    "abort": _as(Status.RUNTIME, "SIGABRT"),
    "exit": _as(Status.RUNTIME, "exit code 3"),
    "hang": _as(Status.TIMEOUT, "no answer within"),
    "spin": _as(Status.TIMEOUT, "no answer within"),
    "raise": _as(Status.RUNTIME, "ValueError: not this config"),
    "exhaust host memory": _as(Status.RUNTIME, "GiB of memory"),
    "exhaust device memory": _as(Status.RUNTIME, "OutOfMemoryError"),
    "fill the disk": _as(Status.RUNTIME, "GiB of disk", "No space left"),
    "close all files": Expected(
        frozenset([Status.RUNTIME, Status.TIMEOUT]), ("Bad file descriptor", "broke its connection", "no answer within")
    ),
    "crash the compiler": _as(Status.COMPILE, "the compiler crashed"),
}
"""Faults of the process that launches or compiles the config."""

COMPILING = ("crash the compiler",)


# The kernel -----------------------------------------------------------------------------------------------------------


def good_configs() -> list[dict[str, Any]]:
    """Return seventy sound configs, with 1 to 64 elements per thread and trip."""
    every = itertools.product((1, 2, 4, 8), (128, 256, 512, 1024, 2048), (1, 2, 4, 8, 16))
    fitting = [(rows, cols, warps) for rows, cols, warps in every if 1 <= rows * cols // (32 * warps) <= 64]
    return [{"ROWS": rows, "COLS": cols, "num_warps": warps, FAULT: ""} for rows, cols, warps in fitting[:70]]


def faulty_configs(kinds: Sequence[str], count: int = 30) -> list[dict[str, Any]]:
    """Return `count` faulty configs, about equally many of each kind."""
    return [
        {"ROWS": (1, 2)[turn // len(kinds) % 2], "COLS": 1024, "num_warps": 4, FAULT: kinds[turn % len(kinds)]}
        for turn in range(count)
    ]


def mixed(good: Sequence[Config], faulty: Sequence[Config]) -> list[Config]:
    """Return all configs, the faulty ones spread evenly among the others."""
    every = (len(good) + len(faulty)) / len(faulty)
    placed = {int(every * (index + 0.5)): config for index, config in enumerate(faulty)}
    rest = iter(good)
    return [placed[index] if index in placed else next(rest) for index in range(len(good) + len(faulty))]


def _tiling(config: Config, problem: Problem) -> Tiling:
    m, n = problem.dims["M"], problem.dims["N"]
    rows, cols = int(config["ROWS"]), int(config["COLS"])
    return Tiling((Axis("M", m, rows, rows), Axis("N", n, n, cols)), 4 * rows * cols, 8 * rows * cols)


_FUNCTION = "tilewise.benchmarks.gpu.fault_kernels:faulty_sums_kernel"

SPEC = KernelSpec(
    name="fault_injection",
    summary="sums of rows, by configs that go wrong",
    function=(_FUNCTION,),
    dims=("M", "N"),
    dtypes=("float32",),
    parameters=(
        Parameter("ROWS", lambda problem, target: [1, 2, 4, 8]),
        Parameter("COLS", lambda problem, target: [128, 256, 512, 1024, 2048]),
        Parameter("num_warps", lambda problem, target: [1, 2, 4, 8, 16], role="option"),
        Parameter(FAULT, lambda problem, target: ["", *ON_DEVICE, *IN_PROCESS]),
    ),
    configs=lambda problem, target: mixed(good_configs(), faulty_configs([*ON_DEVICE, *IN_PROCESS])),
    buffers=lambda problem: {
        "x_ptr": Buffer((problem.dims["M"], problem.dims["N"]), problem.dtype),
        "out_ptr": Buffer((problem.dims["M"],), problem.dtype, role="out"),
    },
    scalars=lambda problem: dict(problem.dims),
    launches=lambda config, problem: [Launch(_FUNCTION, (-(-problem.dims["M"] // int(config["ROWS"])),))],
    tiling=_tiling,
    reference=lambda inputs: {"out_ptr": inputs["x_ptr"].sum(1)},
    flops=lambda problem: problem.dims["M"] * problem.dims["N"],
    default=lambda problem, target: {},
    origin=f"{__file__}:SPEC",
)


# Faults outside the kernel --------------------------------------------------------------------------------------------


class FaultyRuntime(CudaRuntime):
    """A CUDA runtime that commits the config's fault before each launch."""

    def launcher(
        self, spec: KernelSpec, problem: Problem, config: Config, tensors: Tensors
    ) -> Callable[[], Sequence[Any]]:
        run = super().launcher(spec, problem, config, tensors)
        fault = _PROCESS_FAULTS.get(str(config[FAULT]))
        return run if fault is None else lambda: fault() or run()


def compile_config(origin: str, problem: Problem, config: Config, capability: int) -> dict[str, float]:
    """Compile as the CUDA device does, except for configs that crash the compiler."""
    if config[FAULT] in COMPILING:
        _segfault()
    return cuda_compile.compile_config(origin, problem, config, capability)


def _segfault() -> None:
    ctypes.string_at(0)


def _raise() -> None:
    raise ValueError("not this config")


def _spin() -> None:
    while True:
        pass


def _hang() -> None:
    time.sleep(3600)


def _take_memory() -> None:
    held = [b"x" * (64 << 20) for _ in range(1000)]
    time.sleep(3600 + len(held))


def _take_device_memory() -> None:
    import torch

    held = []
    while True:
        held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))


def _fill_disk() -> None:
    with open(os.path.join(tempfile.gettempdir(), "junk"), "wb") as file:
        while True:
            file.write(b"x" * (1 << 24))


_PROCESS_FAULTS: Mapping[str, Callable[[], None]] = {
    "segfault": _segfault,
    "abort": os.abort,
    "exit": lambda: sys.exit(3),
    "hang": _hang,
    "spin": _spin,
    "raise": _raise,
    "exhaust host memory": _take_memory,
    "exhaust device memory": _take_device_memory,
    "fill the disk": _fill_disk,
    "close all files": lambda: os.closerange(3, 1024),
}


# The benchmark --------------------------------------------------------------------------------------------------------


def bench_faults(*, jobs: int | None = None, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Run the benchmark on an NVIDIA GPU and return its JSON; raise `Unavailable` if there is no GPU."""
    limits = Limits(run_seconds=5.0, floors=0, growth_bytes=2 << 30, disk_bytes=1 << 30)

    def opened() -> CudaDevice:
        module = "tilewise.benchmarks.gpu.faults"
        return CudaDevice(
            jobs=jobs, limits=limits, runtime=f"{module}:FaultyRuntime", compile=f"{module}:compile_config"
        )

    return inject(opened, SPEC, PROBLEM, {**ON_DEVICE, **IN_PROCESS}, progress)


def inject(
    opened: Callable[[], MeasuredDevice],
    spec: KernelSpec,
    problem: Problem,
    kinds: Mapping[str, Expected],
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Time the spec's sound configs twice, tune all configs, and return the comparison as JSON.

    A config's `FAULT` names its kind of fault and is empty for a sound config. `kinds` maps each kind to the expected
    record. In the JSON, `innocent` compares times as ratios to the first clean run, `faults` has the stored record of
    each faulty config with `as_expected`, and `left_behind` lists what should have been cleaned up.
    """
    before = _around()
    began = time.monotonic()
    with opened() as device:
        configs = list(spec.configs(problem, device.target)) if spec.configs else []
        good = [config for config in configs if not config[FAULT]]
        clean = [_times(device, spec, problem, good, f"clean run {run}", progress) for run in (1, 2)]
        device_name, toolchain = device.target.name, device.toolchain
    clean_seconds = time.monotonic() - began
    began = time.monotonic()
    with open_store("sqlite://") as store, opened() as device:
        watcher = _Counter(len(configs), progress)
        tuning = Tuning(spec, problem, device, store, budget=Budget(None), search="exhaustive", watcher=watcher)
        tuning.run()
        trials = {_name(trial.config): trial for trial in store.trials(tuning.scope)}
        faults = [_fault(device, spec, problem, trials[_name(c)], kinds) for c in configs if c[FAULT]]
    mixed_times = [trials[_name(config)].time_us for config in good]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device_name,
        "clock": "measured",
        "toolchain": toolchain,
        "host": {"python": platform.python_version(), "machine": platform.platform()},
        "kernel": spec.name,
        "dims": dict(problem.dims),
        "configs": {"sound": len(good), "faulty": len(faults)},
        "seconds": {"clean": round(clean_seconds, 1), "tuning": round(time.monotonic() - began, 1)},
        "innocent": {
            "timed": sum(time is not None for time in mixed_times),
            "clean_again": _ratios(clean[0], clean[1]),
            "among_faults": _ratios(clean[0], mixed_times),
        },
        "faults": faults,
        "as_expected": sum(fault["as_expected"] for fault in faults),
        "left_behind": _left_behind(before),
    }


class _Counter(Watcher):
    def __init__(self, total: int, progress: Callable[[str], None]) -> None:
        self._total, self._progress, self._done = total, progress, 0

    def tried(self, trial: Trial, best: Trial | None) -> None:
        self._done += 1
        self._progress(f"config {self._done} of {self._total}: {trial.config[FAULT] or 'sound'}: {trial.status}")


def _times(
    device: MeasuredDevice,
    spec: KernelSpec,
    problem: Problem,
    configs: Sequence[Config],
    what: str,
    progress: Callable[[str], None],
) -> list[float | None]:
    progress(what)
    return [outcome.timing.time_us if outcome.timing else None for outcome in device.evaluate(spec, problem, configs)]


def _ratios(clean: Sequence[float | None], times: Sequence[float | None]) -> dict[str, float]:
    """Return the lowest, median and highest ratio of times to those of the clean run."""
    ratios = sorted(b / a for a, b in zip(clean, times, strict=True) if a and b)
    shares = {"lowest": ratios[0], "median": statistics.median(ratios), "highest": ratios[-1]}
    return {name: round(ratio, 4) for name, ratio in shares.items()}


def _fault(
    device: MeasuredDevice, spec: KernelSpec, problem: Problem, trial: Trial, kinds: Mapping[str, Expected]
) -> dict[str, Any]:
    kind = str(trial.config[FAULT])
    expected, status, reason = kinds[kind], trial.status, trial.reason
    led = status is not Status.CORRECT
    if expected.verified and not led:  # the search did not verify it: it was too slow
        verdict = device.verify(spec, problem, trial.config)
        status, reason = (Status.CORRECT, "") if verdict.agreed else (verdict.status, verdict.reason)
    return {
        "fault": kind,
        "config": dict(trial.config),
        "status": str(status),
        "reason": reason,
        "facts": {name: trial.facts[name] for name in (FAULTS, "first_fault", LAST_LINES) if name in trial.facts},
        **({} if led else {"found": "by verifying it, which the search did not"}),
        "as_expected": status in expected.statuses and any(word in reason for word in expected.words),
    }


def _name(config: Config) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(config.items()))


def _around() -> dict[str, set[str]]:
    """Return what a tuning may leave behind: child processes, locks, and files in the temporary folder."""
    locks = read_settings().cache_folder / "locks"
    return {
        "processes": set(_children()),
        "locks": {path.name for path in locks.glob("*.holder")},
        "temporary_files": {path.name for path in Path(tempfile.gettempdir()).glob("tilewise-*")},
    }


def _left_behind(before: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return what was not there before; processes that were told to end have 10 s to do so."""
    latest = time.monotonic() + 10
    while (now := _around())["processes"] - before["processes"] and time.monotonic() < latest:
        time.sleep(0.1)
    return {what: sorted(now[what] - before[what]) for what in now}


def _children() -> list[str]:
    found: list[str] = []
    for task in Path("/proc/self/task").glob("*/children"):
        found += task.read_text().split()
    return found
