"""A long-lived helper process that answers calls, and a pool of them.

A worker is a fresh interpreter (never a fork: Triton and CUDA must not be inherited half set up) that imports one
function and calls it for every request. Requests and answers are pickled over a socket of their own, so nothing that
a kernel or a compiler prints can break the protocol: the worker's stdout and stderr go to a file, from which the
reason of a crash is taken.

A worker leads a session of its own and has a temporary folder of its own. Killing it kills what it started and
removes what it left behind; so does the end of the process that started it, however that comes.
"""

from __future__ import annotations

import importlib
import math
import os
import pickle
import queue
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

__all__ = [
    "Worker",
    "WorkerDied",
    "WorkerError",
    "WorkerExceeded",
    "WorkerFailed",
    "WorkerPool",
    "WorkerTimeout",
    "describe",
    "in_worker",
    "one_line",
]


LAST_LINES = 5
"""Kept of what a process printed before it ended."""

DISK_BYTES = 4 << 30
"""What a call may leave in its temporary folder; compilers need megabytes, a profiler a few hundred."""

_WATCH_SECONDS = 0.2
"""Between two looks at the memory and disk that a call has taken."""

_LEAVE_SECONDS = 1.0
"""How long a process that has closed its connection may take to end."""


class WorkerError(Exception):
    """A call that brought no result; the message is one line. `last_lines` are the last that the process printed."""

    def __init__(self, message: str, last_lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.last_lines = tuple(last_lines)


class WorkerFailed(WorkerError):
    """The function raised. The worker lives."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.message = kind, message


class WorkerDied(WorkerError):
    """The process ended during the call."""


class WorkerExceeded(WorkerDied):
    """The process took more memory or disk than it may, and was killed."""


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
    on top of this process's environment; a value of None removes a variable. `disk_bytes` is what may lie in the
    process's temporary folder.
    """

    def __init__(
        self,
        entry: str,
        *,
        env: Mapping[str, str | None] | None = None,
        start_seconds: float = 120.0,
        disk_bytes: int = DISK_BYTES,
    ) -> None:
        self._entry = entry
        self._env = dict(env or {})
        self._start_seconds, self._disk_bytes = start_seconds, disk_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._noise: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
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
        self._folder = tempfile.TemporaryDirectory(prefix="tilewise-worker-", ignore_cleanup_errors=True)
        words = [str(theirs.fileno()), self._folder.name, self._entry]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tilewise.tuner.worker", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._noise,
            stderr=self._noise,
            pass_fds=[theirs.fileno()],
            env=self._environment(self._folder.name),
            start_new_session=True,
        )
        theirs.close()
        self._connection, self._ready = ours, False

    def call(self, *arguments: Any, timeout: float, memory_bytes: float = math.inf) -> Any:
        """What the function returns for `arguments`; raises a `WorkerError`. `timeout` is in seconds and does not
        count the start of the process; `memory_bytes` is what the process and its children may hold meanwhile."""
        self.start()
        try:
            if not self._ready:
                self._receive(self._start_seconds, math.inf)
                self._ready = True
            self._forget_noise()
            assert self._connection is not None
            self._connection.send(arguments)
            return self._receive(timeout, memory_bytes)
        except (EOFError, OSError, pickle.UnpicklingError) as error:  # the last two: it meddled with the connection
            raise self._died() from error
        except (WorkerTimeout, WorkerExceeded, KeyboardInterrupt):
            self.close()
            raise

    def memory_bytes(self) -> int:
        """Resident memory of the process and all that it has started; 0 where it does not run."""
        return sum(_resident(pid) for pid in _family(self._process.pid)) if self._process else 0

    def kill(self) -> None:
        """Kill the process and all that it has started, and leave the rest to `close`; any thread may."""
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process, if one runs, and remove its temporary files."""
        self.kill()
        process, connection, noise, folder = self._process, self._connection, self._noise, self._folder
        self._process = self._connection = self._noise = self._folder = None
        if process is not None:
            process.wait()
        if connection is not None:
            connection.close()
        if noise is not None:
            noise.close()
        if folder is not None:
            folder.cleanup()

    def _receive(self, seconds: float, memory_bytes: float) -> Any:
        assert self._connection is not None
        end = time.monotonic() + seconds
        while not self._connection.poll(min(_WATCH_SECONDS, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end:
                raise WorkerTimeout(f"no answer within {seconds:g} s", self._last_lines())
            self._watch(memory_bytes)
        kind, value = self._connection.recv()
        if kind is not None:
            raise WorkerFailed(kind, value)
        return value

    def _watch(self, memory_bytes: float) -> None:
        assert self._folder is not None
        taken = {"memory": (self.memory_bytes(), memory_bytes), "disk": (_size(self._folder.name), self._disk_bytes)}
        for what, (used, allowed) in taken.items():
            if used > allowed:
                message = f"it took {used / 2**30:.2f} GiB of {what} where {allowed / 2**30:.2f} GiB are allowed"
                raise WorkerExceeded(message, self._last_lines())

    def _environment(self, folder: str) -> dict[str, str]:
        """Ours, with `env` applied, and with our import path: this process may have found its modules elsewhere."""
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        merged = {**os.environ, "PYTHONPATH": path, "TMPDIR": folder, **self._env}
        return {name: value for name, value in merged.items() if value is not None}

    def _forget_noise(self) -> None:
        self._noise.seek(0)  # the offset is shared with the worker
        self._noise.truncate()

    def _last_lines(self) -> list[str]:
        end = self._noise.seek(0, os.SEEK_END)
        self._noise.seek(max(0, end - 4096))
        lines = [one_line(line) for line in self._noise.read().decode(errors="replace").splitlines()]
        return [line for line in lines if line][-LAST_LINES:]

    def _died(self) -> WorkerDied:
        """How the process ended and the last line that it printed."""
        assert self._process is not None
        try:
            code = self._process.wait(_LEAVE_SECONDS)
            how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            how = "closed its connection"
        lines = self._last_lines()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what it started may live on
        self.close()
        return WorkerDied(one_line(f"the process {how}" + (f" after printing: {lines[-1]}" if lines else "")), lines)


class WorkerPool:
    """Up to `size` workers of one entry; calls are queued and run side by side, each within `memory_bytes`."""

    def __init__(
        self,
        entry: str,
        size: int,
        *,
        env: Mapping[str, str | None] | None = None,
        memory_bytes: float = math.inf,
    ) -> None:
        self._workers = [Worker(entry, env=env) for _ in range(size)]
        self._memory_bytes = memory_bytes
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
            worker.kill()  # its thread, if it has one, sees the end and reaps it
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.close()

    def _call(self, arguments: tuple[Any, ...], timeout: float) -> Any:
        worker = self._idle.get()
        try:
            return worker.call(*arguments, timeout=timeout, memory_bytes=self._memory_bytes)
        finally:
            self._idle.put(worker)


def _family(pid: int) -> Iterator[int]:
    """A process and all that it has started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended meanwhile
            for child in task.read_text().split():
                yield from _family(int(child))


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):  # it has ended
        return 0


def _size(folder: str) -> int:
    """Bytes of all files under a folder."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


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


def _leave_with_parent(descriptor: int, folder: str) -> NoReturn:
    """End when the other side has, with all that was started and left here: one busy with an endless kernel would
    never read the end of the requests."""
    poll = select.poll()
    poll.register(descriptor, 0)  # a hang-up is told always; requests are not for us
    poll.poll()
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
    os._exit(1)  # not reached: the signal is for this process too


def _main(descriptor: str, folder: str, entry: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is expected now and then, and leaves no file
    threading.Thread(target=_leave_with_parent, args=(os.dup(int(descriptor)), folder), daemon=True).start()
    module, _, name = entry.partition(":")
    _serve(Connection(int(descriptor)), getattr(importlib.import_module(module), name))


if __name__ == "__main__":
    _main(*sys.argv[1:])
