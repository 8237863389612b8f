"""NVIDIA GPUs in the tuning process, which finds them and compiles for them but never opens a context on one."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path
from typing import Any
from uuid import UUID

from tilewise.db.records import Clock, Status
from tilewise.errors import Unavailable
from tilewise.tuner.devices.base import DeviceRow
from tilewise.tuner.devices.cuda import compile as cuda_compile
from tilewise.tuner.devices.measured import triton_start
from tilewise.tuner.devices.measured.device import Limits, MeasuredDevice
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.workers.worker import WorkerFailed

__all__ = ["RUNTIME", "CudaDevice", "chips", "row", "unavailable_reason"]

RUNTIME = "tilewise.tuner.devices.cuda.accelerator:CudaRuntime"

_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76
"""CU_DEVICE_ATTRIBUTE_{MULTIPROCESSOR_COUNT, COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR} of cuda.h."""

_NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": None}
"""Environment of the compile processes, which must not open a context on the GPU that is being timed."""


def unavailable_reason() -> str | None:
    """Return in one line why no GPU is usable, or None. Imports neither torch nor triton."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: pip install 'tilewise[cuda]'"
    if (why_not := _without_upstream_triton()) is not None:
        return why_not
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET=1 makes Triton interpret on the CPU: unset it"
    driver = _driver()
    if driver is None:
        return "no NVIDIA driver on this machine (libcuda.so.1 is not found): install one where there is a GPU"
    return None if _count(driver) > 0 else "the NVIDIA driver finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES"


def chips() -> int:
    """Return how many GPUs this process sees."""
    return 0 if unavailable_reason() is not None else _count(_driver())


def row(index: int | None = None) -> DeviceRow:
    """Return the row of a GPU in `tilewise devices`, by default the first's, without importing torch."""
    if (why_not := unavailable_reason()) is not None:
        return DeviceRow("cuda", "NVIDIA GPU", Clock.MEASURED, None, available=False, unavailable_reason=why_not)
    driver = _driver()
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), index or 0)
    cores = _attribute(driver, _MULTIPROCESSORS, index or 0)
    device_id = "cuda" if index is None else f"cuda:{index}"
    return DeviceRow(device_id, name.value.decode(), Clock.MEASURED, cores, available=True)


class CudaDevice(MeasuredDevice):
    """An NVIDIA GPU. Raises `Unavailable` if there is none, and as `MeasuredDevice` does.

    Configs are compiled by `jobs` processes (default: `TILEWISE_JOBS`) while earlier ones are timed. With `warm` the L2
    cache is not cleared before each run. `runtime` and `compile` replace the functions that open the GPU and compile.
    """

    batch = 8

    def __init__(
        self,
        index: int = 0,
        *,
        jobs: int | None = None,
        limits: Limits | None = None,
        wait: float | None = None,
        warm: bool = False,
        runtime: str = RUNTIME,
        compile: str = cuda_compile.ENTRY,  # noqa: A002 - the word for it
    ) -> None:
        if (why_not := unavailable_reason()) is not None:
            raise Unavailable(f"no device cuda: {why_not}")
        driver = _driver()
        if index >= _count(driver):
            raise Unavailable(f"no device cuda:{index}: the NVIDIA driver finds {_count(driver)} GPUs")
        self.index, unique = index, _unique(driver, index)
        self.serial = f"GPU-{UUID(unique)}"  # as nvidia-smi prints it
        self._capability = 10 * _attribute(driver, _MAJOR, index) + _attribute(driver, _MINOR, index)
        super().__init__(
            "cuda" if _count(driver) == 1 else f"cuda:{index}",
            f"cuda-{unique}",
            (runtime, index, warm),
            compile,
            imports=("torch", "triton"),
            compile_imports=(triton_start.ENTRY,),
            compile_env=_NO_GPU,
            jobs=jobs,
            limits=limits,
            wait=wait,
        )

    def compile_arguments(self) -> tuple[int]:
        return (self._capability,)

    def refusal(self, error: WorkerFailed) -> Outcome:
        status = cuda_compile.status(error.kind)
        return Outcome(Status.COMPILE if status is Status.RUNTIME else status, str(error))


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
    """Return the CUDA driver library, initialised, or None."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return library if library.cuInit(0) == 0 else None


def _count(driver: Any) -> int:
    count = ctypes.c_int()
    return count.value if driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def _attribute(driver: Any, attribute: int, index: int) -> int:
    value = ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, index)
    return value.value


def _unique(driver: Any, index: int) -> str:
    """Return the chip's UUID, the same in every process, whatever devices the process sees."""
    uuid = (ctypes.c_ubyte * 16)()
    driver.cuDeviceGetUuid_v2(uuid, index)
    return bytes(uuid).hex()
