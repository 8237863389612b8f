"""The machine's cores shared among tunings: as many jobs at once as there are cores, over all processes.

A core is a file that one job at a time has locked; the lock ends with its process, however that ends. Whoever waits for
a core holds the turnstile meanwhile, so that a process that gives one back and wants another queues behind those that
wait: no tuning starves another.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tilewise.errors import Unavailable

__all__ = ["Cores"]

_POLL_SECONDS = 0.005


class Cores:
    """`count` cores, shared with all who name the same `folder`. Raises `Unavailable` where it cannot be written to."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, count
        self._closed = threading.Event()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a core and keep it. After `close` there is no more waiting: the job is about to be dropped."""
        core = None
        with suppress(InterruptedError):
            turn = self._waited(["turn"])
            try:
                core = self._waited([str(number) for number in range(self._count)])
            finally:
                os.close(turn)
        try:
            yield
        finally:
            if core is not None:
                os.close(core)

    def close(self) -> None:
        """Let go of all that wait."""
        self._closed.set()

    def _waited(self, names: list[str]) -> int:
        """The descriptor of the first of these files that is free; raises `InterruptedError` after `close`."""
        while not self._closed.is_set():
            for name in names:
                if (descriptor := self._locked(name)) is not None:
                    return descriptor
            time.sleep(_POLL_SECONDS)
        raise InterruptedError

    def _locked(self, name: str) -> int | None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            reason = f"{self._folder}: {error.strerror}; set TILEWISE_CACHE to another folder"
            raise Unavailable(f"cannot share the cores: {reason}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor
