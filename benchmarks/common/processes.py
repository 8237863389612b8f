"""A pool of processes for parallel replays, which end at once if the benchmark is stopped."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

__all__ = ["processes"]


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of `count` processes, and kill them if the caller raises, for example on Ctrl-C: nobody needs their
    results any more."""
    # The Ascend compiler's threads do not survive a fork.
    context = multiprocessing.get_context("forkserver" if "triton" in sys.modules else "fork")
    with ProcessPoolExecutor(count, context) as pool:
        try:
            yield pool
        except BaseException:
            for child in multiprocessing.active_children():
                child.kill()
            pool.shutdown(cancel_futures=True)  # its thread would end in the middle of the interpreter's own end
            raise
