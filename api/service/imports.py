"""Imports in a process of their own, one after the other."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from tilewise.errors import TilewiseError, Unavailable
from tilewise.kernels import registry
from tilewise.tuner.workers.supervisor import Supervisor
from tilewise.tuner.workers.worker import WorkerError, WorkerFailed, WorkerPool

__all__ = ["Imports"]

_SECONDS = 3600.0
_LARGE_BYTES = 16 << 20
"""Size of a file after which the process is replaced: it keeps its memory."""

_log = logging.getLogger(__name__)


class Imports:
    """The process of imports, started by the first of them. Use it from the event loop's thread."""

    def __init__(self, url: str, supervisor: Supervisor) -> None:
        self._context = url, registry.own_places()
        self._pool = WorkerPool(supervisor, 1)
        self._one_at_a_time = asyncio.Lock()

    async def merge(self, path: str, turn: AbstractAsyncContextManager[None]) -> dict[str, Any]:
        """Check the export file at `path`, and merge it in a `turn` to write; return the JSON of the outcome.

        Raises `BadImport`, `StoreError`, or `Unavailable` if the process ended.
        """
        async with self._one_at_a_time:
            try:
                await self._call("check", path)
                async with turn:
                    merged: dict[str, Any] = await self._call("merge", path)
                    return merged
            finally:
                if Path(path).stat().st_size > _LARGE_BYTES:
                    await run_in_threadpool(self._pool.restart)

    def close(self) -> None:
        """End the process; an import under way fails and changes nothing. It waits, so call it from a thread."""
        self._pool.close()

    async def _call(self, task: str, path: str) -> Any:
        try:
            outcome = await asyncio.wrap_future(self._pool.submit(*self._context, task, path, timeout=_SECONDS))
        except WorkerFailed:  # a defect, which the middleware reports
            raise
        except WorkerError as error:
            _log.error("the process of an import: %s", error)
            raise Unavailable("the import was given up and nothing was written; the server's log says why") from error
        if isinstance(outcome, TilewiseError):
            raise outcome
        return outcome
