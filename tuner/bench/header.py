"""What a recorded benchmark of the search says of itself: the command, when, with which versions, on what."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["header"]

_PACKAGES = ("numpy", "optuna", "scikit-learn", "kernel-tuner", "torch", "triton", "triton-ascend")


def header(command: str, clock: str, device: str = f"none ({platform.machine()} CPU)") -> dict[str, Any]:
    """`clock` is that of the times which are searched; without a device, recorded ones are replayed."""
    return {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "clock": clock,
        "versions": {"python": platform.python_version(), **_installed()},
    }


def _installed() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
