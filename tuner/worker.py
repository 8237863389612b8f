"""A long-lived helper process that answers calls, and a pool of them.

A worker is a fresh interpreter (never a fork: Triton and CUDA must not be inherited half set up) that imports one
function and calls it for every request. Requests and answers are pickled over a socket of their own, so nothing that
a kernel or a compiler prints can break the protocol: the worker's stdout and stderr go to a file, from which the
reason of a crash is taken.
"""

from __future__ import annotations

import importlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

__all__ = [
    "Worker",
    "WorkerDied",
    "WorkerError",
    "WorkerFailed",
    "WorkerPool",
    "WorkerTimeout",
    "describe",
    "in_worker",
    "one_line",
]


class WorkerError(Exception):
    """A call that brought no result; the message is one line."""


class WorkerFailed(WorkerError):
    """The function raised. The worker lives."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.message = kind, message


class WorkerDied(WorkerError):
    """The process ended during the call."""


class WorkerTimeout(WorkerError):
    """The call took longer than it may; the process was killed."""


def in_worker() -> bool:
    """Whether this process is a worker."""
    main = sys.modules.get("__main__")
    return getattr(getattr(main, "__spec__", None), "name", "") == __name__


def one_line(text: str, limit: int = 300) -> str:
    """The text's lines joined to one, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def describe(error: BaseException) -> str:
    """The error's own words in one line; of a compiler's error those of its cause, not the source that it quotes."""
    while type(error).__name__ == "CompilationError" and error.__cause__ is not None:
        error = error.__cause__
    return one_line(getattr(error, "error_message", None) or str(error))


class Worker:
    """One helper process that calls `entry` (`"package.module:function"`); started by the first call or by `start`.

    After a crash or a time-out the next call starts a new process. Not for use by two threads at once. `env` is set
    on top of this process's environment; a value of None removes a variable.
    """

    def __init__(
        self, entry: str, *, env: Mapping[str, str | None] | None = None, start_seconds: float = 120.0
    ) -> None:
        self._entry = entry
        self._env = dict(env or {})
        self._start_seconds = start_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._noise: Any = None
        self._ready = False

    @property
    def pid(self) -> int | None:
        """The process that runs now, if one does."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process and return at once; it imports while the caller goes on."""
        if self._process is not None:
            return
        ours, theirs = Pipe()
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = [sys.executable, "-P", "-m", "tilewise.tuner.worker", str(theirs.fileno()), self._entry]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._noise,
            stderr=self._noise,
            pass_fds=[theirs.fileno()],
            env=self._environment(),
        )
        theirs.close()
        self._connection, self._ready = ours, False

    def call(self, *arguments: Any, timeout: float) -> Any:
        """What the function returns for `arguments`; raises a `WorkerError`. `timeout` is in seconds and does not
        count the start of the process."""
        self.start()
        try:
            if not self._ready:
                self._receive(self._start_seconds)
                self._ready = True
            self._forget_noise()
            assert self._connection is not None
            self._connection.send(arguments)
            return self._receive(timeout)
        except (EOFError, ConnectionError) as error:
            raise WorkerDied(self._last_words()) from error
        except (WorkerTimeout, KeyboardInterrupt):
            self.close()
            raise

    def close(self) -> None:
        """Kill the process, if one runs."""
        process, connection, noise = self._process, self._connection, self._noise
        self._process = self._connection = self._noise = None
        if process is not None:
            process.kill()
            process.wait()
        if connection is not None:
            connection.close()
        if noise is not None:
            noise.close()

    def _receive(self, seconds: float) -> Any:
        assert self._connection is not None
        if not self._connection.poll(seconds):
            raise WorkerTimeout(f"no answer within {seconds:g} s")
        kind, value = self._connection.recv()
        if kind is not None:
            raise WorkerFailed(kind, value)
        return value

    def _environment(self) -> dict[str, str]:
        """Ours, with `env` applied, and with our import path: this process may have found its modules elsewhere."""
        merged = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path), **self._env}
        return {name: value for name, value in merged.items() if value is not None}

    def _forget_noise(self) -> None:
        self._noise.seek(0)  # the offset is shared with the worker
        self._noise.truncate()

    def _last_words(self) -> str:
        """How the process ended and the last line that it printed."""
        assert self._process is not None
        code = self._process.wait()
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._noise.seek(0)
        lines = self._noise.read().decode(errors="replace").strip().splitlines()
        self.close()
        return one_line(f"the process {how}" + (f" after printing: {lines[-1]}" if lines else ""))


class WorkerPool:
    """Up to `size` workers of one entry; calls are queued and run side by side."""

    def __init__(self, entry: str, size: int, *, env: Mapping[str, str | None] | None = None) -> None:
        self._workers = [Worker(entry, env=env) for _ in range(size)]
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()  # the last used first: it is warm
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="tilewise-worker")

    def submit(self, *arguments: Any, timeout: float) -> Future[Any]:
        """A future of what `Worker.call` returns or raises."""
        return self._threads.submit(self._call, arguments, timeout)

    def start(self) -> None:
        """Start all workers and return at once."""
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Drop what waits and kill the workers; a call that runs raises `WorkerDied`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            if (pid := worker.pid) is not None:
                _kill(pid)  # its thread, if it has one, sees the end and reaps it
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.close()

    def _call(self, arguments: tuple[Any, ...], timeout: float) -> Any:
        worker = self._idle.get()
        try:
            return worker.call(*arguments, timeout=timeout)
        finally:
            self._idle.put(worker)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _serve(connection: Connection, function: Callable[..., Any]) -> None:
    """Answer requests until the other side is gone. An answer is (kind of error or None, value or message)."""
    connection.send((None, "ready"))
    while True:
        try:
            arguments = connection.recv()
        except EOFError:
            return
        connection.send(_answer(function, arguments))


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str | None, Any]:
    try:
        return None, function(*arguments)
    except Exception as error:
        return type(error).__name__, describe(error)


def _leave_with_parent(parent: int) -> None:
    """End when the process that started us has: a worker busy with an endless kernel would never read the EOF."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def _main(descriptor: str, entry: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_leave_with_parent, args=(os.getppid(),), daemon=True).start()
    module, _, name = entry.partition(":")
    _serve(Connection(int(descriptor)), getattr(importlib.import_module(module), name))


if __name__ == "__main__":
    _main(*sys.argv[1:])
