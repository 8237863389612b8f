"""Replays side by side, and what is left of them when somebody stops the benchmark."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

__all__ = ["processes"]


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of so many. Where what is done with it raises, Ctrl-C among others, its processes end at once: nobody
    waits for what they are at."""
    with ProcessPoolExecutor(count) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.kill()
            raise
