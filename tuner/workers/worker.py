"""A long-lived helper process that answers calls, and a pool of them.

A worker is a fresh interpreter, never a fork of this process, so that Triton and CUDA are not inherited half set up. It
imports one function and then forks. The child calls the function for every request. The supervisor only waits for the
child to end, reports how it ended, and forks another, which needs no imports. The imports of the function's module must
not start threads or open an accelerator; the function may.

Requests and answers are pickled over a separate socket, so nothing that a kernel or a compiler prints can break the
protocol: stdout and stderr go to a file, which gives the reason of a crash. The child leads its own session and has its
own temporary folder. When it ends, whatever it has started or left there goes with it. The same happens when the
calling process ends, for whatever reason.
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
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from tilewise.tuner.workers.core_slots import CoreSlots

__all__ = [
    "Worker",
    "WorkerDied",
    "WorkerError",
    "WorkerExceeded",
    "WorkerFailed",
    "WorkerPool",
    "WorkerTimeout",
    "describe",
    "import_path",
    "in_worker",
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

_LEAVE_SECONDS = 2.0
"""Time for a process to end once it was killed or its connection was closed."""


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


_READY, _ANSWER, _RAISED, _ENDED = "ready", "answer", "raised", "ended"
"""Kinds of message, sent as its first value. The second value is respectively a process id; the function's result; the
error's type and message; an exit code, which the supervisor sends."""


def in_worker() -> bool:
    """Return whether this process is a worker."""
    main = sys.modules.get("__main__")
    return getattr(getattr(main, "__spec__", None), "name", "") == __name__


def import_path() -> str:
    """Return this process's import path as a PYTHONPATH: a fresh process might find its modules elsewhere."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


def one_line(text: str, limit: int = 300) -> str:
    """Join the text's lines into one, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def describe(error: BaseException) -> str:
    """Return the error's message in one line; for a compiler's error its cause's, without the source that it quotes."""
    while type(error).__name__ == "CompilationError" and error.__cause__ is not None:
        error = error.__cause__
    return one_line(getattr(error, "error_message", None) or str(error))


class Worker:
    """A helper process that calls `entry` (`"package.module:function"`), started by the first call or by `start`.

    After a crash or a timeout a fresh process answers the next call. Not thread-safe. `env` is set on top of this
    process's environment; a value of None removes a variable. `imports` lists modules that the function will need,
    so that no fresh process has to import them again. `disk_bytes` is the limit of its temporary folder.
    """

    def __init__(
        self,
        entry: str,
        *,
        env: Mapping[str, str | None] | None = None,
        imports: Sequence[str] = (),
        start_seconds: float = 120.0,
        disk_bytes: int = DISK_BYTES,
    ) -> None:
        self._entry, self._imports = entry, tuple(imports)
        self._env = dict(env or {})
        self._start_seconds, self._disk_bytes = start_seconds, disk_bytes
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._output: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process that answers calls, once it has reported that it is ready."""
        return self._pid

    def start(self) -> None:
        """Start the process and return at once; it imports while the caller continues."""
        if self._supervisor is not None:
            return
        ours, theirs = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._folder = tempfile.TemporaryDirectory(prefix="tilewise-worker-", ignore_cleanup_errors=True)
        words = [str(theirs.fileno()), self._folder.name, self._entry, *self._imports]
        self._supervisor = subprocess.Popen(
            [sys.executable, "-P", "-m", "tilewise.tuner.workers.worker", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=[theirs.fileno()],
            env=self._environment(self._folder.name),
            start_new_session=True,
        )
        theirs.close()
        _limit_receive_wait(ours)
        self._connection = ours

    def call(self, *arguments: Any, timeout: float, memory_bytes: float = math.inf) -> Any:
        """Return the function's result for `arguments`; raises a `WorkerError`.

        `timeout` is in seconds and excludes starting the process. `memory_bytes` limits the memory that the process
        and its children hold during the call.
        """
        self.start()
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
            self.close()
            raise

    def memory_bytes(self) -> int:
        """Return the resident memory of the process and all that it has started; 0 if it is not running."""
        return sum(_resident(pid) for pid in _family(self._pid)) if self._pid else 0

    def restart(self) -> None:
        """Make a fresh process answer the next call."""
        if self._pid is not None:
            self._end_child()

    def kill(self) -> None:
        """Kill the process and all that it has started, and leave the rest to `close`. Any thread may call this."""
        supervisor, pid = self._supervisor, self._pid
        if pid is not None:
            _kill_group(pid)
        elif supervisor is not None and supervisor.returncode is None:
            _kill_group(supervisor.pid)

    def close(self) -> None:
        """Kill the process, if it is running, and remove its temporary files."""
        self.kill()
        supervisor, connection, output, folder = self._supervisor, self._connection, self._output, self._folder
        self._supervisor = self._connection = self._output = self._folder = self._pid = None
        if connection is not None:
            connection.close()
        if supervisor is not None:
            try:
                supervisor.wait(_LEAVE_SECONDS)  # it sees the connection closed
            except subprocess.TimeoutExpired:
                _kill_group(supervisor.pid)
                supervisor.wait()
        if output is not None:
            output.close()
        if folder is not None:
            folder.cleanup()

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
        if kind == _ENDED:
            self._pid = None
            raise self._died(value)
        if kind == _RAISED:
            raise WorkerFailed(*value)
        return value

    def _watch(self, memory_bytes: float) -> None:
        assert self._folder is not None
        usage = {"memory": (self.memory_bytes(), memory_bytes), "disk": (_size(self._folder.name), self._disk_bytes)}
        for resource_name, (used, limit) in usage.items():
            if used > limit:
                message = f"it used {used / 2**30:.2f} GiB of {resource_name}; the limit is {limit / 2**30:.2f} GiB"
                raise WorkerExceeded(message, self._last_lines())

    def _environment(self, folder: str) -> dict[str, str]:
        """Return this process's environment with `env` applied."""
        merged = {**os.environ, "PYTHONPATH": import_path(), "TMPDIR": folder, **self._env}
        return {name: value for name, value in merged.items() if value is not None}

    def _clear_output(self) -> None:
        self._output.seek(0)  # the offset is shared with the worker
        self._output.truncate()

    def _last_lines(self) -> list[str]:
        end = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, end - 4096))
        lines = [one_line(line) for line in self._output.read().decode(errors="replace").splitlines()]
        return [line for line in lines if line][-LAST_LINES:]

    def _end_child(self) -> None:
        """Kill the child and wait for the supervisor to confirm its end; kill a supervisor that does not."""
        self.kill()
        with suppress(WorkerError, EOFError, OSError):
            while self._pid is not None:
                self._receive(_DEATH_SECONDS)
        if self._pid is not None:
            self.close()

    def _lost(self) -> WorkerDied:
        """Discard everything after losing the supervisor or a usable connection, and return the error to raise."""
        assert self._supervisor is not None
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(_LEAVE_SECONDS)
        error = self._died(self._supervisor.returncode)
        self.close()
        return error

    def _died(self, code: int | None) -> WorkerDied:
        """Return an error that says how the process ended and the last line that it printed."""
        if code is None:
            how = "broke its connection"
        else:
            how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = self._last_lines()
        return WorkerDied(one_line(f"the process {how}" + (f" after printing: {lines[-1]}" if lines else "")), lines)


class WorkerPool:
    """Up to `size` workers of one entry; calls are queued and run in parallel, each within `memory_bytes`.

    With `cores`, a call waits for one of them. Other pools, also in other processes, share them.
    """

    def __init__(
        self,
        entry: str,
        size: int,
        *,
        env: Mapping[str, str | None] | None = None,
        imports: Sequence[str] = (),
        memory_bytes: float = math.inf,
        cores: CoreSlots | None = None,
    ) -> None:
        self._cores = cores
        self._workers = [Worker(entry, env=env, imports=imports) for _ in range(size)]
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

    def close(self) -> None:
        """Drop the queued calls and kill the workers; a running call raises `WorkerDied`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._cores is not None:
            self._cores.close()
        for worker in self._workers:
            worker.kill()  # its thread, if it has one, notices and reaps it
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


def _family(pid: int) -> Iterator[int]:
    """Yield a process and all that it has started, by id."""
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
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(_LEAVE_SECONDS), 0))


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the latter if only zombies are left in the group
        os.killpg(leader, signal.SIGKILL)


def _main(descriptor: str, folder: str, entry: str, *imports: str) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected; they leave no core file
    for module in imports:
        importlib.import_module(module)
    module, _, name = entry.partition(":")
    function = getattr(importlib.import_module(module), name)
    _supervise(Connection(int(descriptor)), function, folder)


def _supervise(connection: Connection, function: Callable[..., Any], folder: str) -> NoReturn:
    """Keep a child that answers requests until the other side hangs up."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # Python's own handler writes to the pipe
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(connection.fileno(), 0)  # a hang-up is always reported; requests are for the child
    warnings.simplefilter("ignore", DeprecationWarning)  # about forking after a library has started threads
    while True:
        sys.stdout.flush()
        os.makedirs(folder, exist_ok=True)
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            _live(connection, function)
        code = _end(child, reading, poll)
        shutil.rmtree(folder, ignore_errors=True)
        if code is None:
            os._exit(0)
        try:
            connection.send((_ENDED, code))
        except OSError:
            os._exit(0)


def _end(child: int, reading: int, poll: select.poll) -> int | None:
    """Wait for the child to end and return its exit code as `subprocess` does, or None if the other side hung up.

    In either case, kill everything that the child has started.
    """
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        hung_up = bool(ready - {reading})
        with suppress(BlockingIOError):
            os.read(reading, 4096)
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        if ended or hung_up:
            _kill_group(child)
            _, status = os.waitpid(child, 0)
            return None if hung_up else os.waitstatus_to_exitcode(status)


def _live(connection: Connection, function: Callable[..., Any]) -> NoReturn:
    """Serve requests, then end without the interpreter's clean-up, which is the supervisor's to do."""
    code = 0
    try:
        _serve(connection, function)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve(connection: Connection, function: Callable[..., Any]) -> None:
    """Answer requests until the other side is gone.

    Skip requests to an earlier process that ended before it read them: their sender has been told of its end.
    """
    connection.send((_READY, me := os.getpid()))
    while True:
        try:
            addressee, arguments = connection.recv()
        except EOFError:
            return
        if addressee == me:
            connection.send(_answer(function, arguments))


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return _ANSWER, function(*arguments)
    except Exception as error:
        return _RAISED, (type(error).__name__, describe(error))


if __name__ == "__main__":
    _main(*sys.argv[1:])
