"""A lock for threads that is had in turns."""

from __future__ import annotations

import threading
from types import TracebackType

__all__ = ["FairLock"]


class FairLock:
    """A lock that the thread that has just released it gets only after another that waits.

    Python's own may be taken by one thread again and again while another waits. The thread that has it may take it
    again.
    """

    def __init__(self) -> None:
        self._gate, self._held = threading.Lock(), threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            with self._gate:
                self._held.acquire()
            self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._held.release()
