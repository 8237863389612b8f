"""One process at a time on a device: a file lock, which ends with the process that holds it, however that ends."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tilewise.errors import Unavailable

__all__ = ["DeviceLock"]

_POLL_SECONDS = 0.1


def _tell(line: str) -> None:
    print(f"tilewise: {line}", file=sys.stderr, flush=True)


class DeviceLock:
    """Held from `acquire` to `release`. `device` is what the chip is called to people, `key` what tells it from all
    others of this machine; `folder` is where processes that are to see one another keep their locks.

    The file says who holds it, and is gone when nobody does.
    """

    def __init__(self, device: str, key: str, folder: Path) -> None:
        self._device = device
        self._file = folder / f"{re.sub('[^A-Za-z0-9_.-]', '_', key)}.lock"
        self._descriptor: int | None = None

    def acquire(self, wait: float | None = None, told: Callable[[str], None] = _tell) -> None:
        """Wait up to `wait` seconds (None: as long as it takes) and tell whom for. Raises `Unavailable`."""
        end = None if wait is None else time.monotonic() + wait
        waiting = False
        while not self._taken():
            holder = self._holder()
            if end is not None and time.monotonic() >= end:
                raise Unavailable(f"{self._device} is in use by {holder}; try again later, or let it wait with --wait")
            if not waiting:
                told(f"{self._device} is in use by {holder}; waiting for it")
                waiting = True
            time.sleep(_POLL_SECONDS)

    def release(self) -> None:
        """Let others have the device; a second time does nothing."""
        if self._descriptor is not None:
            self._file.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def _taken(self) -> bool:
        """Take the lock if nobody has it."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            message = (
                f"cannot lock {self._device}: {self._file}: {error.strerror}; set TILEWISE_CACHE to another folder"
            )
            raise Unavailable(message) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        if not self._is_current(descriptor):  # its last holder removed it after we had opened it
            os.close(descriptor)
            return self._taken()
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(_self_portrait()).encode())
        self._descriptor = descriptor
        return True

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._file))
        except FileNotFoundError:
            return False

    def _holder(self) -> str:
        try:
            found = json.loads(self._file.read_text())
            return f"process {found['pid']} ({found['command']}) since {found['since']}"
        except (OSError, ValueError, KeyError):  # it is just coming or going
            return "another process"


def _self_portrait() -> dict[str, str | int]:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    since = datetime.now(UTC).strftime("%H:%M:%S UTC")
    return {"pid": os.getpid(), "command": command[:120], "since": since}
