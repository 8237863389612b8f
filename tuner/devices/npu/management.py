"""A chip's serial number from `npu-smi`, the command that comes with the driver. Never run on an NPU so far."""

from __future__ import annotations

import re
import subprocess

__all__ = ["serial"]

_SECONDS = 30.0
_HEADER = re.compile(r"\s*NPU ID\s+Chip ID\s+Chip Logic ID\s")
_DIE = re.compile(r"^\s*V?Die ID\s*:\s*((?:[0-9A-F]{8} *)+)$", re.MULTILINE)
"""The die's number: `Die ID` in older drivers. Another line has the `NDie ID`, that of the die beside it."""


def serial(chip: str) -> str:
    """Return the number of the die of a chip, which is given by its logical number; empty if npu-smi does not tell it.

    Huawei's documents say that no two dies have the same.
    """
    place = _place(_told("-m"), chip)
    if place is None:
        return ""
    npu, of_npu = place
    found = _DIE.search(_told("-t", "board", "-i", npu, "-c", of_npu))
    return "-".join(found[1].split()) if found else ""


def _place(mapping: str, chip: str) -> tuple[str, str] | None:
    """Return the NPU and the chip's number on it from the table of `npu-smi info -m`, whose first three columns are
    these and the logical number. Its rows for other chips, such as `Mcu`, have no logical number."""
    header, *rows = mapping.splitlines() or [""]
    if not _HEADER.match(header):
        return None
    numbers = (row.split()[:3] for row in rows)
    return next(((one[0], one[1]) for one in numbers if len(one) == 3 and one[2] == chip), None)


def _told(*words: str) -> str:
    """Return what `npu-smi info` prints; nothing if it is not here, fails or hangs."""
    try:
        command = ["npu-smi", "info", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
