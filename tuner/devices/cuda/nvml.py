"""A GPU's state from NVIDIA's management library, and the driver version."""

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
"""NVML's throttle reasons that slow down a busy GPU, in words."""


class Management:
    """A GPU as the management library sees it."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    @classmethod
    def open(cls, uuid: object) -> Management | None:
        """Open the GPU with that UUID, which is the same in every process; None if the library does not know it."""
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

    def energy_mj(self) -> float | None:
        """Return the millijoules that the board has taken since the driver was loaded; None where it does not count."""
        with suppress(self._nvml.NVMLError):
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        return None


def driver_version() -> str:
    """Return the driver version as `nvidia-smi` prints it, or `unknown` without the management library."""
    if (nvml := _library()) is not None:
        with suppress(nvml.NVMLError):
            return str(nvml.nvmlSystemGetDriverVersion())
    return "unknown"


def _library() -> Any:
    """Return the initialised bindings, or None on a machine without NVIDIA's driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
