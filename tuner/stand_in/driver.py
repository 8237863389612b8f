"""A Triton driver without a device.

`@triton.autotune` asks for the active driver when a module is imported, and fails on a host without a device. This
driver answers such questions and can launch nothing.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

__all__ = ["StandInDriver", "driver_stand_in", "has_driver", "is_ascend", "properties"]

_NVIDIA = {
    "multiprocessor_count": 132,
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "warpSize": 32,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 6144,
    "sm_clock_rate": 1980000,
}
"""Properties of an H200 (its data sheet, CUDA C++ Programming Guide)."""

_ASCEND = {"num_aicore": 20, "num_vectorcore": 40, "multiprocessor_count": 40}
"""Properties of an Ascend 910B4; its processors are the vector cores, as for programs that know no NPU."""

TIMED_MS = 1.0
"""Time that every benchmark of a program reports while nothing is launched."""


def has_driver() -> bool:
    """Return whether Triton finds exactly one device's driver on this machine."""
    backends = importlib.import_module("triton.backends").backends
    with warnings.catch_warnings():  # triton-ascend warns that CANN is missing, which is the question
        warnings.simplefilter("ignore")
        return sum(bool(backend.driver.is_active()) for backend in backends.values()) == 1


def is_ascend() -> bool:
    """Return whether the installed Triton compiles for Ascend NPUs: triton-ascend is the same package."""
    return "ascend" in importlib.import_module("triton.backends").backends


def properties() -> dict[str, int]:
    """Return what programs read before they choose a grid; the names of both kinds of device, whichever it is."""
    return _NVIDIA | _ASCEND if is_ascend() else _ASCEND | _NVIDIA


class StandInDriver:
    """The driver; `device` is the torch device that programs are told is active."""

    def __init__(self, device: Callable[[], Any]) -> None:
        self._device = device
        self.utils = SimpleNamespace(get_device_properties=lambda index: properties())

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> Any:
        target = importlib.import_module("triton.backends.compiler").GPUTarget
        return target("npu", "Ascend910B4", 0) if is_ascend() else target("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, index: int) -> None: ...

    def get_current_stream(self, index: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return self._device()

    def get_device_interface(self) -> Any:
        torch = importlib.import_module("torch")
        return torch.npu if is_ascend() else torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        return timed_once

    def get_empty_cache_for_benchmark(self) -> Any:
        return importlib.import_module("torch").empty(0)

    def clear_cache(self, cache: Any) -> None: ...


def timed_once(run: Callable[[], Any], *args: Any, quantiles: Sequence[float] | None = None, **kwargs: Any) -> Any:
    """Call a function once, as `triton.testing.do_bench` calls it many times, and return `TIMED_MS` milliseconds."""
    run()
    return [TIMED_MS] * len(quantiles) if quantiles else TIMED_MS


_BENCHMARKS = ("do_bench", "do_bench_cudagraph", "do_bench_npu")


@contextmanager
def driver_stand_in(device: Callable[[], Any]) -> Iterator[None]:
    """Make the stand-in Triton's active driver while the block runs, and have benchmarks call a function once."""
    drivers = importlib.import_module("triton.runtime.driver").driver
    testing = importlib.import_module("triton.testing")
    before = {name: getattr(testing, name) for name in _BENCHMARKS if hasattr(testing, name)}
    active = vars(drivers).get("_active", vars(drivers).get("active"))
    drivers.set_active(StandInDriver(device))
    for name in before:
        setattr(testing, name, timed_once)
    try:
        yield
    finally:
        drivers.set_active(active)
        for name, function in before.items():
            setattr(testing, name, function)
