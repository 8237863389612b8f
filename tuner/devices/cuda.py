"""NVIDIA GPUs: upstream Triton compiles, CUDA events time."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tilewise.db.records import Clock, Status
from tilewise.errors import BadSpec, Unavailable
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.settings import read_settings
from tilewise.tuner.devices import cuda_compile
from tilewise.tuner.devices.base import Device, DeviceRow, Outcome, Verdict
from tilewise.tuner.devices.cuda_timer import CudaTimer
from tilewise.tuner.launch import launcher, resolve_functions
from tilewise.tuner.verify import Arguments, disagreement, verify
from tilewise.tuner.worker import WorkerDied, WorkerError, WorkerFailed, WorkerPool, WorkerTimeout, describe

__all__ = ["RATE_BYTES", "CudaDevice", "available", "row"]

COMPILE_SECONDS = 120.0
"""A compile that takes longer counts as hung; ordinary ones take 0.3 to 5 s."""

RATE_BYTES = 512 << 20
"""Moved to measure the memory rate: far over any L2 cache."""

_COMPILE_ERRORS = {
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "PTXASError",
    "MLIRCompilationError",
}
_LIMIT_ERRORS = {"OutOfResources"}
_MULTIPROCESSORS = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT of cuda.h."""


def available() -> str | None:
    """Why there is no usable GPU, in one line, or None; imports neither torch nor triton."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: pip install 'tilewise[cuda]'"
    if (why_not := _without_upstream_triton()) is not None:
        return why_not
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET=1 makes Triton interpret on the CPU: unset it"
    driver = _driver()
    if driver is None:
        return "no NVIDIA driver on this machine (libcuda.so.1 is not found)"
    return None if _count(driver) > 0 else "the NVIDIA driver finds no GPU"


def row() -> DeviceRow:
    """The device's line in `tilewise devices`, without importing torch."""
    if (why_not := available()) is not None:
        return DeviceRow("cuda", "NVIDIA GPU", Clock.MEASURED, None, available=False, why_not=why_not)
    driver = _driver()
    assert driver is not None
    name, cores = ctypes.create_string_buffer(256), ctypes.c_int()
    driver.cuDeviceGetName(name, len(name), 0)
    driver.cuDeviceGetAttribute(ctypes.byref(cores), _MULTIPROCESSORS, 0)
    return DeviceRow("cuda", name.value.decode(), Clock.MEASURED, cores.value, available=True)


class CudaDevice(Device):
    """One NVIDIA GPU; raises `Unavailable` where there is none.

    Configs are compiled by `jobs` processes (default: `TILEWISE_JOBS`) while earlier ones are timed.
    A spec without an origin cannot be found by those processes: it is compiled here, one config after another, and
    its outcomes say `"compiled": "in process"`.

    A fault on the device (an illegal address, say) poisons the CUDA context of the process: the config gets status
    `runtime`, and the next call raises `Unavailable`.
    """

    clock = Clock.MEASURED
    batch = 8

    def __init__(self, index: int = 0, *, jobs: int | None = None, seconds: float = 0.05) -> None:
        if (why_not := available()) is not None:
            raise Unavailable(f"no device cuda: {why_not}")
        import torch

        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise Unavailable(
                f"no device cuda:{index}: torch {torch.__version__} sees {torch.cuda.device_count()} GPUs"
            )
        torch.cuda.set_device(index)
        self.id = "cuda" if index == 0 else f"cuda:{index}"
        self.place, self._seconds, self._lost = f"cuda:{index}", seconds, ""
        properties = torch.cuda.get_device_properties(index)
        self._capability = 10 * properties.major + properties.minor
        self._memory = properties.total_memory
        self.target = Target(
            family="nvidia",
            name=properties.name,
            cores=properties.multi_processor_count,
            on_chip_bytes=properties.shared_memory_per_multiprocessor,
            align_bytes=16,  # the widest load of one thread
            max_programs=2**31 - 1,  # the grid's first axis
        )
        self.toolchain = _toolchain(self._capability)
        self.timer = CudaTimer(index)
        self._compilers = WorkerPool(cuda_compile.ENTRY, jobs or read_settings().jobs, env=_no_gpu())
        self._held: tuple[KernelSpec, Problem, Arguments] | None = None
        self._bytes_per_us: float | None = None

    def evaluate(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> Iterator[Outcome]:
        resolve_functions(spec)  # a spec that is wrong as a whole is the caller's error, not each config's
        compiling = [self._compile_ahead(spec, problem, config) for config in configs]
        try:
            for config, future in zip(configs, compiling, strict=True):
                self._require_life()
                yield self._outcome(spec, problem, config, future)
        finally:
            for future in compiling:
                if future is not None:
                    future.cancel()

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        self._require_life()
        try:
            return verify(spec, problem, config, self.arguments(spec, problem))
        except Exception as error:
            self._look_for_life(error)
            return disagreement(f"the launch failed: {_reason(error)}", status=Status.RUNTIME)

    def memory_bytes(self) -> int:
        """A sixteenth of the memory: a 16-bit problem's float64 reference holds three tensors of four times that."""
        return int(self._memory // 16)

    def floor_us(self, spec: KernelSpec, problem: Problem) -> float:
        """At the better of the rates that torch reads and copies a large buffer with, measured on the first call."""
        if self._bytes_per_us is None:
            self._bytes_per_us = self._measured_rate()
        return spec.bytes(problem) / self._bytes_per_us

    def warm_up(self) -> None:
        """Start the compile processes; their imports take a few seconds."""
        self._compilers.start()

    def arguments(self, spec: KernelSpec, problem: Problem) -> Arguments:
        """The problem's tensors, made once; only the last problem's are kept."""
        if self._held is None or self._held[0] != spec or self._held[1] != problem:
            self._held = None  # free the old ones first
            self._held = (spec, problem, Arguments(spec, problem, device=self.place))
        return self._held[2]

    def close(self) -> None:
        self._compilers.close()
        self._held = None

    def _compile_ahead(self, spec: KernelSpec, problem: Problem, config: Config) -> Future[Any] | None:
        if not spec.origin:
            return None
        return self._compilers.submit(spec.origin, problem, dict(config), self._capability, timeout=COMPILE_SECONDS)

    def _outcome(self, spec: KernelSpec, problem: Problem, config: Config, compiling: Future[Any] | None) -> Outcome:
        facts: dict[str, Any] = {"compiled": "in process"}
        try:
            if compiling is not None:
                facts = {"compiled": "ahead", "compile_s": compiling.result()["compile_s"]}
        except WorkerError as error:
            return _compile_outcome(error)
        try:
            return self._timed(spec, problem, config, facts)
        except Exception as error:
            self._look_for_life(error)
            return Outcome(_status(type(error).__name__), _reason(error))

    def _timed(self, spec: KernelSpec, problem: Problem, config: Config, facts: dict[str, Any]) -> Outcome:
        import torch

        arguments = self.arguments(spec, problem)
        run = launcher(spec, problem, config, arguments.bind(config))
        arguments.reset()
        kernels = run()
        torch.cuda.synchronize()
        reset = arguments.reset if arguments.needs_reset else None
        timing = self.timer.device_time_us(run, reset=reset, seconds=self._seconds)
        return Outcome(Status.CORRECT, timing=timing, facts={**_facts(kernels), **facts})

    def _measured_rate(self) -> float:
        import torch

        x = torch.randn(RATE_BYTES // 4, device=self.place)
        y = torch.empty_like(x)
        read = self.timer.device_time_us(lambda: torch.sum(x)).time_us
        copied = self.timer.device_time_us(lambda: y.copy_(x)).time_us
        return max(RATE_BYTES / read, 2 * RATE_BYTES / copied)

    def _require_life(self) -> None:
        if self._lost:
            raise Unavailable(f"{self.id} is lost to this process after a fault ({self._lost}); start again to go on")

    def _look_for_life(self, error: Exception) -> None:
        """Whether the context still works after `error`; if not, nothing else will run in this process."""
        import torch

        try:
            torch.cuda.synchronize()
        except Exception:
            self._lost = _reason(error)


def _compile_outcome(error: WorkerError) -> Outcome:
    match error:
        case WorkerTimeout():
            return Outcome(Status.TIMEOUT, f"compiling: {error}")
        case WorkerDied():
            return Outcome(Status.COMPILE, f"the compiler crashed: {error}")
        case WorkerFailed(kind="BadSpec"):
            raise BadSpec(error.message)
        case WorkerFailed():
            status = Status.CONSTRAINTS if error.kind in _LIMIT_ERRORS else Status.COMPILE
            return Outcome(status, str(error))
    raise error


def _status(kind: str) -> Status:
    if kind in _LIMIT_ERRORS:
        return Status.CONSTRAINTS
    return Status.COMPILE if kind in _COMPILE_ERRORS else Status.RUNTIME


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {describe(error)}"


def _facts(kernels: Sequence[Any]) -> dict[str, Any]:
    """What the driver says of the loaded binaries; of several, the most."""
    return {
        "registers": max(kernel.n_regs for kernel in kernels),
        "spills": max(kernel.n_spills for kernel in kernels),
        "shared_bytes": max(kernel.metadata.shared for kernel in kernels),
    }


def _no_gpu() -> dict[str, str | None]:
    """Environment of the compile processes: they must not open a context on the GPU that is being timed."""
    return {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": None}


def _without_upstream_triton() -> str | None:
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return "triton is not installed: pip install 'tilewise[cuda]'"
    if not (Path(found.origin).parent / "backends" / "nvidia").is_dir():
        return (
            "the triton installed here has no NVIDIA backend (triton-ascend?): use an environment with tilewise[cuda]"
        )
    return None


def _driver() -> Any:
    """The CUDA driver library, initialised, or None."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return library if library.cuInit(0) == 0 else None


def _count(driver: Any) -> int:
    count = ctypes.c_int()
    return count.value if driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def _toolchain(capability: int) -> str:
    import torch
    import triton

    parts = (f"triton {triton.__version__}", f"torch {torch.__version__}", f"cuda {torch.version.cuda}")
    return ", ".join((*parts, f"driver {_driver_version()}", f"sm_{capability}"))


def _driver_version() -> str:
    """As `nvidia-smi` prints it; `unknown` where the management library is missing."""
    text = ctypes.create_string_buffer(96)
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "unknown"
    if library.nvmlInit_v2() != 0 or library.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return "unknown"
    return text.value.decode()
