"""The machine's cores shared among tunings: over all processes, as many jobs run at once as there are cores.

A core is a file that one job at a time locks. A job that waits for a core holds the turnstile lock meanwhile. So a
process that returns a core and wants another queues behind those that wait, and no tuning starves another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.tuner.workers.file_lock import try_lock

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["CoreSlots"]

_POLL_SECONDS = 0.01


class CoreSlots:
    """`count` cores, shared by all users of the same `folder`. Raises `Unavailable` if it cannot be written to."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, count
        self._closed = threading.Event()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a core and hold it. After `close` no call waits any more: its job is about to be dropped."""
        core = None
        with suppress(InterruptedError):
            turn = self._first_free(["turn"])
            try:
                core = self._first_free([str(core_index) for core_index in range(self._count)])
            finally:
                turn.release()
        try:
            yield
        finally:
            if core is not None:
                core.release()

    def close(self) -> None:
        """Release all calls that wait."""
        self._closed.set()

    def _first_free(self, names: list[str]) -> BaseFileLock:
        """Lock the first of these files that is free; raises `InterruptedError` after `close`."""
        while not self._closed.is_set():
            for name in names:
                if (lock := try_lock(self._folder / name, "share the cores")) is not None:
                    return lock
            time.sleep(_POLL_SECONDS)
        raise InterruptedError
