"""Identities of processes, which tell others whether one still runs, and an executor that starts a process per call."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import cache
from pathlib import Path
from typing import Any

from tilewise.tuner.workers.supervisor import import_path

__all__ = ["ProcessEnded", "ProcessExecutor", "identity", "is_gone"]


def identity() -> str:
    """Return this process's identity: host name, boot id, pid and start time."""
    return f"{_host()}/{os.getpid()}/{_started(os.getpid())}"


def is_gone(owner: str) -> bool | None:
    """Return whether the process with this identity has ended; None if unknown, because it ran on another host."""
    host, _, started = owner.rpartition("/")
    host, _, pid = host.rpartition("/")
    if host != _host() or not pid.isdigit():
        return None
    return _started(int(pid)) != started


@cache
def _host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}/{boot.read_text().strip() if boot.exists() else 'unknown'}"


def _started(pid: int) -> str:
    """Return a process's start time in clock ticks since boot; empty if it has ended. A zombie counts as ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


class ProcessEnded(Exception):
    """The process ended before its function returned; the message says how."""


class ProcessExecutor(Executor):
    """An executor that runs each call in a fresh process, which exits at once when this process ends.

    The function and its arguments are pickled. The future of a call that returned holds None: submitted functions
    store their results in a database.
    """

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[None]:  # type: ignore[override]
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            process = _start(pickle.dumps((fn, args, kwargs)))
            self._running.add(process)
        threading.Thread(target=self._await, args=(process, future), daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the processes if `wait`; with `cancel_futures`, kill them first."""
        with self._lock:
            running = list(self._running)
        for process in running:
            if cancel_futures:
                process.kill()
            if wait:
                process.wait()

    def _await(self, process: subprocess.Popen[bytes], future: Future[None]) -> None:
        code = process.wait()
        with self._lock:
            self._running.discard(process)
        if code == 0:
            future.set_result(None)
        else:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            future.set_exception(ProcessEnded(f"its process ended with {how}"))


def _start(call: bytes) -> subprocess.Popen[bytes]:
    """Start a process for a pickled call, which it inherits as a file in memory.

    The file is complete before the process starts: if the caller is killed, no process waits for the rest of a call.
    """
    with os.fdopen(os.memfd_create("call"), "w+b") as memory:
        memory.write(call)
        memory.seek(0)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(os.getpid())],
            stdin=memory,
            env={**os.environ, "PYTHONPATH": import_path()},
        )


def _leave_with(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="leave-with-parent").start()


if __name__ == "__main__":
    _leave_with(int(sys.argv[1]))
    function, arguments, keywords = pickle.load(sys.stdin.buffer)
    function(*arguments, **keywords)
