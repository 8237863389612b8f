"""A long-lived helper process that answers calls, and a pool of them.

A worker is a child of a supervisor: a fresh interpreter, never a fork of this process, so that Triton and CUDA are not
inherited half set up. The supervisor imports one function and then forks; all workers of a pool share one. The child
calls the function for every request. The supervisor only waits for a child to end, reports how it ended, and forks
another, which needs no imports. The imports of the function's module must not start threads or open an accelerator; the
function may.

Requests and answers are pickled over a separate socket, so nothing that a kernel or a compiler prints can break the
protocol: stdout and stderr go to a file, which gives the reason of a crash. The child leads its own session and has its
own temporary folder. When it ends, whatever it has started or left there goes with it. The same happens when the
calling process ends, for whatever reason.
"""

from __future__ import annotations

import math
import os
import pickle
import queue
import re
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tilewise.tuner.workers.core_slots import CoreSlots
from tilewise.tuner.workers.supervisor import LEAVE_SECONDS, Supervisor, SupervisorProcess, kill_group, tail

__all__ = [
    "ANSWER",
    "ENDED",
    "RAISED",
    "READY",
    "Worker",
    "WorkerDied",
    "WorkerError",
    "WorkerExceeded",
    "WorkerFailed",
    "WorkerPool",
    "WorkerTimeout",
    "crash",
    "describe",
    "family",
    "one_line",
]


LAST_LINES = 5
"""Number of lines kept of a process's output before it ended."""

DISK_BYTES = 4 << 30
"""Bytes that a call may leave in its temporary folder. Compilers need megabytes, a profiler a few hundred."""

_WATCH_SECONDS = 0.2
"""Interval between two checks of a call's memory and disk use."""

_DEATH_SECONDS = 20.0
"""Time for a killed process to end. A kernel that it is running on a device has to be stopped first."""


class WorkerError(Exception):
    """A call without a result; the message is one line. `last_lines` are the last lines that the process printed."""

    def __init__(self, message: str, last_lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.last_lines = tuple(last_lines)


class WorkerFailed(WorkerError):
    """A call whose function raised. The worker lives."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.message = kind, message


class WorkerDied(WorkerError):
    """A call during which the process ended."""


class WorkerExceeded(WorkerDied):
    """A call that exceeded its memory or disk limit; the process was killed."""


class WorkerTimeout(WorkerError):
    """A call that exceeded its time limit; the process was killed."""


READY, ANSWER, RAISED, ENDED = "ready", "answer", "raised", "ended"
"""Kinds of message, sent as its first value. The second value is respectively a process id; the function's result; the
error's type and message; an exit code, which the supervisor sends."""


def one_line(text: str, limit: int = 300) -> str:
    """Join the text's lines into one, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


_ASSERTION = re.compile(r"([\w.-]+):(\d+): .*Assertion [`'](.+?)' failed")
"""The line that a program of C prints before it aborts itself."""

_FATAL = re.compile(r"^LLVM ERROR: (.+)", re.MULTILINE)


def crash(program: str, code: int, printed: str) -> str:
    """Return how a command crashed, in one line, from its exit code and what it printed; empty if it did not."""
    if code >= 0:
        return ""
    if found := _ASSERTION.search(printed):
        file, line, claim = found.groups()
        return one_line(f"{program} crashed, as its assertion '{claim}' failed ({file}:{line})")
    if found := _FATAL.search(printed):
        return one_line(f"{program} crashed: {found.group(1)}")
    return f"{program} crashed ({signal.Signals(-code).name})"


def describe(error: BaseException) -> str:
    """Return the error's message in one line; for a compiler's or interpreter's error its cause's, without the
    source that it quotes, and for a command's what it printed."""
    while type(error).__name__ in ("CompilationError", "InterpreterError") and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        printed = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr
        program = Path(error.cmd if isinstance(error.cmd, str) else error.cmd[0]).name
        if found := crash(program, error.returncode, printed):
            return found
        return one_line(next((part for part in printed.splitlines() if "error:" in part), printed))
    return one_line(getattr(error, "error_message", None) or str(error))


class Worker:
    """A helper process that calls `entry` (`"package.module:function"`), started by the first call or by `start`.

    After a crash or a timeout a fresh process answers the next call. Not thread-safe. `env` is set on top of this
    process's environment; a value of None removes a variable. `imports` lists modules that the function will need, and
    functions (`"package.module:function"`) to call once, so that no fresh process has to do either again. Instead of an
    entry, a `Supervisor` that other workers share has all three; who made it closes it. `disk_bytes` is the limit of
    the process's temporary folder.
    """

    def __init__(
        self,
        entry: str | Supervisor,
        *,
        env: Mapping[str, str | None] | None = None,
        imports: Sequence[str] = (),
        start_seconds: float = 120.0,
        disk_bytes: int = DISK_BYTES,
    ) -> None:
        self._shares = isinstance(entry, Supervisor)
        self._supervisor = entry if isinstance(entry, Supervisor) else Supervisor(entry, env=env, imports=imports)
        self._start_seconds, self._disk_bytes = start_seconds, disk_bytes
        self._process: SupervisorProcess | None = None
        self._connection: Connection | None = None
        self._output: Any = None
        self._folder = ""
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process that answers calls, once it has reported that it is ready."""
        return self._pid

    def start(self) -> None:
        """Start the process and return at once; it imports while the caller continues."""
        if self._process is not None and not self._process.ended:
            return
        self._disconnect()
        self._connection, theirs = Pipe()
        _limit_receive_wait(self._connection)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        with theirs:
            self._process, self._folder = self._supervisor.fork(theirs, self._output)

    def call(self, *arguments: Any, timeout: float, memory_bytes: float = math.inf) -> Any:
        """Return the function's result for `arguments`; raises a `WorkerError`.

        `timeout` is in seconds and excludes starting the process. `memory_bytes` limits the memory that the process
        and its children hold during the call.
        """
        try:
            self.start()
        except EOFError as error:
            raise WorkerDied(str(error)) from error
        try:
            if self._pid is None:
                self._pid = self._receive(self._start_seconds)
            self._clear_output()
            assert self._connection is not None
            self._connection.send((self._pid, arguments))
            return self._receive(timeout, memory_bytes)
        except (EOFError, OSError) as error:
            raise self._lost() from error
        except (WorkerTimeout, WorkerExceeded):
            self._end_child()
            raise
        except KeyboardInterrupt:
            self._disconnect()
            raise

    def memory_bytes(self) -> int:
        """Return the resident memory of the process and all that it has started; 0 if it is not running."""
        return sum(_resident(pid) for pid in family(self._pid)) if self._pid else 0

    def restart(self) -> None:
        """Make a fresh process answer the next call."""
        if self._pid is not None:
            self._end_child()

    def close(self) -> None:
        """Kill the process, if it is running, and remove its temporary files. A later call starts another."""
        self._disconnect()
        if not self._shares:
            self._supervisor.close()

    def _kill(self) -> None:
        if self._pid is not None:
            kill_group(self._pid)

    def _disconnect(self) -> None:
        """Kill the process and leave the rest to its supervisor, which notices that the connection is closed."""
        self._kill()
        connection, output = self._connection, self._output
        self._process = self._connection = self._output = self._pid = None
        if connection is not None:
            connection.close()
        if output is not None:
            output.close()

    def _receive(self, seconds: float, memory_bytes: float = math.inf) -> Any:
        assert self._connection is not None
        end = time.monotonic() + seconds
        while not self._connection.poll(min(_WATCH_SECONDS, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end:
                raise WorkerTimeout(f"no answer within {seconds:g} s", self._last_lines())
            self._watch(memory_bytes)
        try:
            kind, value = self._connection.recv()
        except (pickle.UnpicklingError, ValueError, TypeError, AttributeError, ImportError) as error:
            raise EOFError("the data received is not a message") from error  # something else wrote to the connection
        if kind == ENDED:
            self._pid = None
            raise self._died(value)
        if kind == RAISED:
            raise WorkerFailed(*value)
        return value

    def _watch(self, memory_bytes: float) -> None:
        usage = {"memory": (self.memory_bytes(), memory_bytes), "disk": (_size(self._folder), self._disk_bytes)}
        for resource_name, (used, limit) in usage.items():
            if used > limit:
                message = f"it used {used / 2**30:.2f} GiB of {resource_name}; the limit is {limit / 2**30:.2f} GiB"
                raise WorkerExceeded(message, self._last_lines())

    def _clear_output(self) -> None:
        self._output.seek(0)  # the offset is shared with the worker
        self._output.truncate()

    def _last_lines(self) -> list[str]:
        return _lines(tail(self._output))

    def _end_child(self) -> None:
        """Kill the child and wait for the supervisor to confirm its end; leave one that ends or starts too slowly."""
        if self._pid is None and self._process is not None:
            self._process.give_up()
            self._disconnect()
        self._kill()
        with suppress(WorkerError, EOFError, OSError):
            while self._pid is not None:
                self._receive(_DEATH_SECONDS)
        if self._pid is not None:
            self._disconnect()

    def _lost(self) -> WorkerDied:
        """Discard everything after losing the supervisor or a usable connection, and return the error to raise."""
        process = self._process
        if process is None:  # another thread has closed this worker
            return WorkerDied("the worker was closed")
        self._kill()
        code, printed = process.ending(LEAVE_SECONDS)
        error = self._died(code, printed)
        self._disconnect()
        return error

    def _died(self, code: int | None, printed: str = "") -> WorkerDied:
        """Return an error that says how the process ended and the last line that it, or its supervisor, printed."""
        if code is None:
            how = "broke its connection"
        else:
            how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = self._last_lines() or _lines(printed)
        return WorkerDied(one_line(f"the process {how}" + (f" after printing: {lines[-1]}" if lines else "")), lines)


class WorkerPool:
    """Up to `size` workers of one entry and one supervisor; calls are queued and run in parallel, each within
    `memory_bytes`.

    Pools may share a `Supervisor`; closing one of them closes it for all. With `cores`, a call waits for one of them.
    Other pools, also in other processes, share them.
    """

    def __init__(
        self,
        entry: str | Supervisor,
        size: int,
        *,
        env: Mapping[str, str | None] | None = None,
        imports: Sequence[str] = (),
        memory_bytes: float = math.inf,
        cores: CoreSlots | None = None,
    ) -> None:
        self._cores = cores
        self._supervisor = entry if isinstance(entry, Supervisor) else Supervisor(entry, env=env, imports=imports)
        self._workers = [Worker(self._supervisor) for _ in range(size)]
        self._memory_bytes = memory_bytes
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()  # the last used first: it is warm
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="tilewise-worker")

    def submit(self, *arguments: Any, timeout: float) -> Future[Any]:
        """Return a future of the result or error of `Worker.call`."""
        return self._threads.submit(self._call, arguments, timeout)

    def start(self) -> None:
        """Start all workers and return at once."""
        for worker in self._workers:
            worker.start()

    def restart(self) -> None:
        """Make fresh processes answer the next calls. Call it while no call is under way."""
        for worker in self._workers:
            worker.restart()

    def close(self) -> None:
        """Drop the queued calls and kill the workers; a running call raises `WorkerDied`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._cores is not None:
            self._cores.close()
        self._supervisor.close(for_good=True)
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.close()

    def _call(self, arguments: tuple[Any, ...], timeout: float) -> Any:
        worker = self._idle.get()
        try:
            with self._cores.one() if self._cores else nullcontext():
                return worker.call(*arguments, timeout=timeout, memory_bytes=self._memory_bytes)
        finally:
            self._idle.put(worker)


def family(pid: int) -> Iterator[int]:
    """Yield a process and all that it has started, by id."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended meanwhile
            for child in task.read_text().split():
                yield from family(int(child))


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # it has ended
        return 0


def _lines(printed: str) -> list[str]:
    """Return the last lines of what a process printed, without empty ones."""
    lines = [one_line(line) for line in printed.splitlines()]
    return [line for line in lines if line][-LAST_LINES:]


def _size(folder: str) -> int:
    """Return the disk use of all files under a folder, in bytes."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


def _limit_receive_wait(connection: Connection) -> None:
    """Limit the wait for the rest of a message that has begun; reading it then fails with `BlockingIOError`."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(LEAVE_SECONDS), 0))
