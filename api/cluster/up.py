"""`tilewise fleet up`: a process that supervises the fleet, and is started again when Ray's head is lost.

Ray ends a process that has lost the head. So the supervisor is a process of its own. Jobs and their trials are in the
database, from which new actors go on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

from tilewise.api.cluster.supervisor import Supervisor
from tilewise.api.jobs.processes import ProcessEnded, ProcessExecutor
from tilewise.db.workers import Lane
from tilewise.errors import Unavailable
from tilewise.tuner.cluster.offer import resources_of
from tilewise.tuner.cluster.ray_engine import answers, connected

__all__ = ["keep_up", "supervise"]

_TURN_SECONDS = 1.0
_AGAIN_SECONDS = 1.0
_END_SECONDS = 90.0
_HEAD_FAILURES, _HEAD_SECONDS = 3, 2.0
"""Failed connections in a row, each within this time, after which the head is lost."""
_NOT_CONNECTED, _LOST = 76, 77
"""Exit codes of a supervisor that Ray never answered, and of one that lost the head."""


def keep_up(
    address: str | None, url: str, kernels: Sequence[str], lanes: Sequence[Lane], told: Callable[[str], None]
) -> None:
    """Supervise the fleet until SIGTERM or SIGINT; then drain it. Raises `Unavailable` if no cluster answers at first.

    Without an address, the fleet is a cluster on this machine that offers `lanes`. If a head answers, wait for this
    machine to be a node of its cluster.
    """
    with _stopped_by_signals() as stopped:
        executor, connected_once, is_told = ProcessExecutor(), False, False
        while not stopped.is_set():
            _, future = executor.start(supervise, address, url, tuple(kernels), tuple(lanes))
            code = _code(executor, future, stopped)
            if code == 0:
                return
            if code == _NOT_CONNECTED and not connected_once:
                if address is None or not answers(address, _HEAD_SECONDS):
                    raise Unavailable(f"no Ray cluster answers at {address}" if address else "Ray does not start here")
                if not is_told:
                    told(f"waiting for this machine to be a node of the cluster at {address}")
                    is_told = True
            if code != _NOT_CONNECTED:
                connected_once = True
                told("Ray's head is lost; connecting again")
            stopped.wait(_AGAIN_SECONDS)


def supervise(address: str | None, url: str, kernels: Sequence[str], lanes: Sequence[Lane]) -> None:
    """Supervise the fleet in this process, which ends when Ray does."""
    try:
        with connected(address, resources_of(lanes)) as ray, _stopped_by_signals() as stopped:
            _leave_with_head(ray.get_runtime_context().gcs_address)
            supervisor = Supervisor(ray, url, kernels, _tell)
            while not stopped.is_set():
                supervisor.turn()
                stopped.wait(_TURN_SECONDS)
            supervisor.drain()
    except Unavailable:
        sys.exit(_NOT_CONNECTED)


def _leave_with_head(address: str) -> None:
    """End this process once the head is away. Ray itself waits longer and then aborts, amid its own call stacks."""

    def watch() -> None:
        failures = 0
        while failures < _HEAD_FAILURES:
            time.sleep(1.0)
            failures = 0 if answers(address, _HEAD_SECONDS) else failures + 1
        os._exit(_LOST)

    threading.Thread(target=watch, daemon=True, name="leave-with-head").start()


def _code(executor: ProcessExecutor, future: Future[None], stopped: threading.Event) -> int:
    """Wait for the supervisor to end, have it end once `stopped` is set, and return its exit code."""
    while not future.done():
        if stopped.wait(0.1):
            executor.terminate()
            break
    try:
        error = future.exception(_END_SECONDS)
    except TimeoutError:
        executor.shutdown(wait=True, cancel_futures=True)
        return 0
    return 0 if stopped.is_set() or error is None else error.code if isinstance(error, ProcessEnded) else 1


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Set the event on SIGTERM and SIGINT."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(line: str) -> None:
    print(f"tilewise: {line}", file=sys.stderr)
