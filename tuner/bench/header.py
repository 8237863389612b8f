"""What a recorded benchmark of the search says of itself: the command, when, with which versions, on what."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["header"]

_PACKAGES = ("numpy", "optuna", "scikit-learn", "kernel-tuner")


def header(command: str, clock: str) -> dict[str, Any]:
    """`clock` is that of the times which are searched: no device is used, recorded ones are replayed."""
    return {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": f"none ({platform.machine()} CPU)",
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
