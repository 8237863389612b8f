"""A pool of processes for parallel replays, which end at once if the benchmark is stopped."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

__all__ = ["processes"]


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of `count` processes, and kill them if the caller raises, for example on Ctrl-C: nobody needs their
    results any more.

    They are forked from a process that has only imported what they need. Forked from this one they crash where it has
    used the Ascend compiler, whose threads do not survive a fork.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tilewise.benchmarks.search.search", "tilewise.db.sql.sql_store"])
    with ProcessPoolExecutor(count, context) as pool:
        try:
            yield pool
        except BaseException:
            for child in multiprocessing.active_children():
                child.kill()
            pool.shutdown(cancel_futures=True)  # waits for its thread, which would else write to a closed pipe at exit
            raise
