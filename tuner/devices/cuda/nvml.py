"""The state of a GPU from NVIDIA's management library, and the driver's version."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tilewise.tuner.devices.measured.accelerator import State

__all__ = ["Management", "driver_version"]

_THROTTLING = {
    "SwPowerCap": "power cap",
    "HwSlowdown": "hardware slowdown",
    "SyncBoost": "synchronised boost",
    "SwThermalSlowdown": "temperature (software)",
    "HwThermalSlowdown": "temperature (hardware)",
    "HwPowerBrakeSlowdown": "power brake",
}
"""Those of NVML's throttle reasons that slow a busy GPU down, in words."""


class Management:
    """One GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    @classmethod
    def open(cls, uuid: object) -> Management | None:
        """The GPU of that UUID, which is the same in every process; None where the library does not know it."""
        if (nvml := _library()) is None:
            return None
        with suppress(nvml.NVMLError):
            return cls(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
        return None

    def state(self) -> State:
        nvml, clock, reasons = self._nvml, None, 0
        with suppress(nvml.NVMLError):
            clock = float(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM))
        with suppress(nvml.NVMLError):
            reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        bits = {text: getattr(nvml, f"nvmlClocksThrottleReason{name}") for name, text in _THROTTLING.items()}
        return State(clock, ", ".join(text for text, bit in bits.items() if reasons & bit))


def driver_version() -> str:
    """As `nvidia-smi` prints it; `unknown` where the management library is missing."""
    if (nvml := _library()) is not None:
        with suppress(nvml.NVMLError):
            return str(nvml.nvmlSystemGetDriverVersion())
    return "unknown"


def _library() -> Any:
    """The bindings, initialised; None on a machine without NVIDIA's driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
