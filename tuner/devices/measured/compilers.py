"""The compile processes of this process's devices, which chips of one kind share.

Eight chips of a host so have one compile process a core, not eight, and a config that two chips want one after the
other, for shapes that Triton compiles alike, is compiled once: calls are taken in the order in which they came.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from tilewise.tuner.workers.supervisor import import_path
from tilewise.tuner.workers.worker import WorkerPool

__all__ = ["Compilers"]

_Kind = tuple[Any, ...]


_pools: dict[_Kind, WorkerPool] = {}
_users: Counter[_Kind] = Counter()
_lock = threading.Lock()


class Compilers:
    """A device's part in the processes that compile by one function, with one environment, imports and limits.

    They end when the last device that shares them is closed. The arguments are those of `WorkerPool`.
    """

    def __init__(
        self,
        entry: str,
        size: int,
        *,
        env: Mapping[str, str | None] | None,
        imports: Sequence[str],
        memory_bytes: int,
    ) -> None:
        started_in = {**os.environ, **(env or {})}  # the processes keep what this one has now
        self._kind: _Kind = (entry, size, frozenset(started_in.items()), import_path(), tuple(imports), memory_bytes)
        self._closed = False
        with _lock:
            if self._kind not in _pools:
                _pools[self._kind] = WorkerPool(entry, size, env=env, imports=imports, memory_bytes=memory_bytes)
            _users[self._kind] += 1
            self._pool = _pools[self._kind]

    def submit(self, *arguments: Any, timeout: float) -> Future[Any]:
        """Return a future of the result or error of `Worker.call`."""
        return self._pool.submit(*arguments, timeout=timeout)

    def start(self) -> None:
        """Start the processes that do not run and return at once."""
        with _lock:
            self._pool.start()

    def close(self) -> None:
        """Leave the processes to the other devices. Without any, drop the queued calls and kill them."""
        with _lock:
            if self._closed:
                return
            self._closed = True
            _users[self._kind] -= 1
            if _users[self._kind]:
                return
            del _users[self._kind], _pools[self._kind]
        self._pool.close()
