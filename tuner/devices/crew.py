"""Work on several chips at the same time, a thread for each, of which one thread hears."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeVar

__all__ = ["Crew"]

M = TypeVar("M", bound=Hashable)
N = TypeVar("N")


class Crew(Generic[M, N]):
    """Members that work at the same time. None works on when the crew is left: each ends after its present news."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._said: SimpleQueue[N | Future[None]] = SimpleQueue()
        self._running: dict[Future[None], M] = {}
        self.stopping = threading.Event()

    def begin(self, member: M, work: Iterator[N]) -> None:
        """Have a member that is not `busy` do some work, which is to yield its news."""
        future = self._threads.submit(self._do, work)
        self._running[future] = member
        future.add_done_callback(self._said.put)

    @property
    def busy(self) -> set[M]:
        """Members whose work has not been heard to end."""
        return set(self._running.values())

    def hear(self) -> list[N]:
        """Wait for news or for the end of some work, and return all news so far. Raises what that work raised."""
        heard = [self._said.get(), *(self._said.get() for _ in range(self._said.qsize()))]
        for ended in (one for one in heard if isinstance(one, Future)):
            del self._running[ended]
            ended.result()
        return [one for one in heard if not isinstance(one, Future)]

    def _do(self, work: Iterator[N]) -> None:
        for news in work:
            self._said.put(news)
            if self.stopping.is_set():
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        wait(self._running)
