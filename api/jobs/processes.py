"""Identities of processes, which tell others whether one still runs, and an executor that starts a process per call."""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tilewise.errors import Unavailable
from tilewise.settings import read_settings
from tilewise.tuner.workers.file_lock import try_lock
from tilewise.tuner.workers.supervisor import import_path

__all__ = [
    "HEIR_SECONDS",
    "IN_USE",
    "ProcessEnded",
    "ProcessExecutor",
    "forget",
    "identity",
    "identity_of",
    "is_gone",
    "mark_for",
    "new_token",
    "pid_of",
    "seen_alive",
]


IN_USE = 75
"""Exit code of a job's process whose device another program holds."""

HEIR_SECONDS = 120.0
"""Time for which a process that outlives the one that started it waits for another to take over."""

_LOOK_SECONDS = 2.0
_LAST_SECONDS = 60.0
"""Time that such a process has to end by itself when none does."""


def identity() -> str:
    """Return this process's identity: host name, boot id, pid, and a UUID of this start.

    Only the UUID tells processes apart. Containers may have the same host name, boot id and pids.
    """
    return identity_of(os.getpid(), _token())


def identity_of(pid: int, token: str) -> str:
    """Return the identity of a process of this host that was started with this token."""
    return f"{_host()}/{pid}/{token}"


def pid_of(owner: str) -> int:
    """Return the id that a process has on its host."""
    return int(owner.split("/")[-2])


def new_token() -> str:
    return uuid.uuid4().hex


@contextmanager
def seen_alive(owner: str | None = None) -> Iterator[None]:
    """Have others with this cache folder see that this process lives, until the block or the process ends.

    They know it as `owner`, by default its `identity`. They see it by a lock on a file, which ends with the process,
    and which it may have from its start by `mark_for`. Raises `Unavailable` if the file cannot be created.
    """
    file = _mark(owner or identity())
    lock = try_lock(file, "mark this process as alive")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        if lock is not None:
            lock.release()


@contextmanager
def mark_for(token: str) -> Iterator[int | None]:
    """Make the mark of a process that is to be started with `token`; yield a descriptor of it for the process.

    Whatever becomes of this process, others see the one that inherits the descriptor alive until it ends, and then that
    it has ended until one calls `forget`. None if the file cannot be created, of which `seen_alive` tells.
    """
    mark = _mark(token)
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(mark, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # as `try_lock` does, whose lock cannot be handed on
        yield descriptor
    finally:
        os.close(descriptor)


def is_gone(owner: str) -> bool | None:
    """Return whether the process with this identity has ended.

    None if unknown: it ran on another host, or in a container with another cache folder.
    """
    if not owner.startswith(f"{_host()}/"):
        return None
    mark = _mark(owner)
    if not mark.exists():
        return None
    try:
        lock = try_lock(mark, "check whether a process is alive")
    except Unavailable:
        return None
    if lock is None:
        return False
    lock.release()
    return True


def forget(owner: str) -> None:
    """Remove what a process that has ended left behind to be seen alive."""
    _mark(owner).unlink(missing_ok=True)


def _mark(owner: str) -> Path:
    return read_settings().cache_folder / "processes" / owner.rpartition("/")[2]


@cache
def _token() -> str:
    return new_token()


os.register_at_fork(after_in_child=_token.cache_clear)


@cache
def _host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}/{boot.read_text().strip() if boot.exists() else 'unknown'}"


class ProcessEnded(Exception):
    """The process ended before its function returned; the message says how. `code` is negative for a signal."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class ProcessExecutor(Executor):
    """An executor that runs each call in a fresh process, which exits at once when this process ends.

    With `heir`, the name of a lock that this process holds, the process outlives this one. It ends by SIGTERM if no
    other process takes the lock within `HEIR_SECONDS`, and whenever it is free for so long.

    The function and its arguments are pickled. The future of a call that returned holds None: submitted functions
    store their results in a database.
    """

    def __init__(self, heir: Path | None = None) -> None:
        self._heir = heir
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[None]:  # type: ignore[override]
        return self.start(fn, *args, **kwargs)[1]

    def start(
        self, fn: Callable[..., Any], /, *args: Any, inherited: int | None = None, **kwargs: Any
    ) -> tuple[int, Future[None]]:
        """Do what `submit` does, with a file descriptor that the process inherits; return the process's id too."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            process = _start(pickle.dumps((fn, args, kwargs)), self._heir, inherited)
            self._running.add(process)
        threading.Thread(target=self._await, args=(process, future), daemon=True).start()
        return process.pid, future

    def terminate(self) -> None:
        """Ask the processes to end, by SIGTERM."""
        with self._lock:
            for process in self._running:
                process.terminate()

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
            future.set_exception(ProcessEnded(f"its process ended with {how}", code))


def _start(call: bytes, heir: Path | None, inherited: int | None) -> subprocess.Popen[bytes]:
    """Start a process for a pickled call, which it inherits as a file in memory, like the other descriptor.

    The file is complete before the process starts: if the caller is killed, no process waits for the rest of a call.
    """
    with os.fdopen(os.memfd_create("call"), "w+b") as memory:
        memory.write(call)
        memory.seek(0)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(os.getpid()), *([str(heir)] if heir else [])],
            stdin=memory,
            pass_fds=() if inherited is None else (inherited,),
            env={**os.environ, "PYTHONPATH": import_path()},
            start_new_session=heir is not None,  # it does not end with its parent's processes either
        )


def _leave_with(parent: int, heir: Path | None) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        if heir is not None:
            _wait_for_no_heir(heir)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_LAST_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="leave-with-parent").start()


def _wait_for_no_heir(file: Path) -> None:
    """Wait until no process has held the lock for `HEIR_SECONDS`."""
    seen = time.monotonic()
    while time.monotonic() - seen < HEIR_SECONDS:
        lock = try_lock(file, "look for an heir")
        if lock is None:
            seen = time.monotonic()
        else:
            lock.release()
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    _leave_with(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    function, arguments, keywords = pickle.load(sys.stdin.buffer)
    function(*arguments, **keywords)
