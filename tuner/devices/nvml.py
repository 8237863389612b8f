"""What NVIDIA's management library (libnvidia-ml, part of the driver) says of a GPU, through ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

from tilewise.tuner.devices.runtime import State

__all__ = ["THROTTLING", "Management", "driver_version"]

_SM_CLOCK = 1
"""NVML_CLOCK_SM of nvml.h."""

THROTTLING = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "synchronised boost",
    0x20: "temperature (software)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}
"""nvmlClocksThrottleReason* of nvml.h, those that slow a busy GPU down."""


class Management:
    """One GPU, found by its number that is the same in every process."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle

    @classmethod
    def open(cls, unique: object) -> Management | None:
        """None where the library is missing or does not know the GPU."""
        library, handle = _library(), ctypes.c_void_p()
        if library is None:
            return None
        name = f"GPU-{unique}".encode()
        return cls(library, handle) if library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)) == 0 else None

    def state(self) -> State:
        clock, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        known = self._library.nvmlDeviceGetClockInfo(self._handle, _SM_CLOCK, ctypes.byref(clock)) == 0
        asked = self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, ctypes.byref(reasons)) == 0
        throttled = [text for bit, text in THROTTLING.items() if asked and reasons.value & bit]
        return State(float(clock.value) if known else None, ", ".join(throttled))


def driver_version() -> str:
    """As `nvidia-smi` prints it; `unknown` where the management library is missing."""
    text, library = ctypes.create_string_buffer(96), _library()
    if library is None or library.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return "unknown"
    return text.value.decode()


def _library() -> Any:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None
