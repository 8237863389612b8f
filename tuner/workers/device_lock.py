"""A lock that admits one process at a time to a device."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.errors import InUse
from tilewise.tuner.workers.file_lock import try_lock

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["DeviceLock"]

_POLL_SECONDS = 0.1


def _tell(line: str) -> None:
    print(f"tilewise: {line}", file=sys.stderr)


class DeviceLock:
    """A lock on a device, held from `acquire` to `release` or until this process ends.

    `device` is the name shown to users; `key` identifies the chip on this machine. Processes that are to exclude one
    another must use the same `folder`. A file beside the lock names its holder.
    """

    def __init__(self, device: str, key: str, folder: Path) -> None:
        self._device = device
        self._file = folder / f"{re.sub('[^A-Za-z0-9_.-]', '_', key)}.lock"
        self._note = self._file.with_suffix(".holder")
        self._lock: BaseFileLock | None = None

    def acquire(self, wait: float | None = None, told: Callable[[str], None] = _tell) -> None:
        """Wait up to `wait` seconds (None: indefinitely) and report the holder to `told`. Raises `InUse`."""
        end = None if wait is None else time.monotonic() + wait
        waiting = False
        while (lock := try_lock(self._file, f"lock {self._device}")) is None:
            holder = self._holder()
            if end is not None and time.monotonic() >= end:
                raise InUse(f"{self._device} is in use by {holder}; try again later, or wait with --wait")
            if not waiting:
                told(f"{self._device} is in use by {holder}; waiting for it")
                waiting = True
            time.sleep(_POLL_SECONDS)
        self._lock = lock
        self._note.write_text(json.dumps(_self_portrait()))

    def release(self) -> None:
        """Release the device; a second call does nothing."""
        if self._lock is not None:
            self._note.unlink(missing_ok=True)
            self._lock.release()
            self._lock = None

    def _holder(self) -> str:
        try:
            found = json.loads(self._note.read_text())
            os.kill(found["pid"], 0)
            return f"process {found['pid']} ({found['command']}) since {found['since']}"
        except (OSError, ValueError, KeyError):  # it is just starting or ending
            return "another process"


def _self_portrait() -> dict[str, str | int]:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    since = datetime.now(UTC).strftime("%H:%M:%S UTC")
    return {"pid": os.getpid(), "command": command[:120], "since": since}
