"""A long-lived helper process that answers calls, and a pool of them.

A worker is a fresh interpreter (never a fork of ours: Triton and CUDA must not be inherited half set up) that imports
one function and then forks: the child calls the function for every request, the supervisor does nothing but wait for
its end, says how it came, and forks another, which costs no imports. What the function's module imports must not start
threads or open an accelerator; the function may.

Requests and answers are pickled over a socket of their own, so nothing that a kernel or a compiler prints can break the
protocol: stdout and stderr go to a file, from which the reason of a crash is taken. The child leads a session of its
own and has a temporary folder of its own. With it goes whatever it has started or left there; so it does when the
process that wanted it ends, however that comes.
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
"""Kept of what a process printed before it ended."""

DISK_BYTES = 4 << 30
"""What a call may leave in its temporary folder; compilers need megabytes, a profiler a few hundred."""

_WATCH_SECONDS = 0.2
"""Between two looks at the memory and disk that a call has taken."""

_DEATH_SECONDS = 20.0
"""How long a killed process may take to be gone: one with a kernel running on a device has that stopped first."""

_LEAVE_SECONDS = 2.0
"""How long a process that was killed, or whose connection is closed, may take to be gone."""


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


_READY, _ANSWER, _RAISED, _ENDED = "ready", "answer", "raised", "ended"
"""What a message is: its first value. The second is a process id; what the function returned; the kind of error and
its message; an exit code (this one from the supervisor)."""


def in_worker() -> bool:
    """Whether this process is a worker."""
    main = sys.modules.get("__main__")
    return getattr(getattr(main, "__spec__", None), "name", "") == __name__


def import_path() -> str:
    """This process's, as the PYTHONPATH of another: it may have found its modules elsewhere than a fresh one would."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


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

    After a crash or a time-out the next call is answered by a fresh process. Not for use by two threads at once. `env`
    is set on top of this process's environment; a value of None removes a variable. `imports` are modules that the
    function will need: no fresh process has to import them again. `disk_bytes` may lie in its temporary folder.
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
        self._noise: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """The process that answers calls, once it has said that it is there."""
        return self._pid

    def start(self) -> None:
        """Start the process and return at once; it imports while the caller goes on."""
        if self._supervisor is not None:
            return
        ours, theirs = Pipe()
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._folder = tempfile.TemporaryDirectory(prefix="tilewise-worker-", ignore_cleanup_errors=True)
        words = [str(theirs.fileno()), self._folder.name, self._entry, *self._imports]
        self._supervisor = subprocess.Popen(
            [sys.executable, "-P", "-m", "tilewise.tuner.workers.worker", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._noise,
            stderr=self._noise,
            pass_fds=[theirs.fileno()],
            env=self._environment(self._folder.name),
            start_new_session=True,
        )
        theirs.close()
        _never_wait_long(ours)
        self._connection = ours

    def call(self, *arguments: Any, timeout: float, memory_bytes: float = math.inf) -> Any:
        """What the function returns for `arguments`; raises a `WorkerError`. `timeout` is in seconds and does not
        count the start of the process; `memory_bytes` is what the process and its children may hold meanwhile."""
        self.start()
        try:
            if self._pid is None:
                self._pid = self._receive(self._start_seconds)
            self._forget_noise()
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
        """Resident memory of the process and all that it has started; 0 where it does not run."""
        return sum(_resident(pid) for pid in _family(self._pid)) if self._pid else 0

    def restart(self) -> None:
        """See that the next call is answered by a fresh process."""
        if self._pid is not None:
            self._end_child()

    def kill(self) -> None:
        """Kill the process and all that it has started, and leave the rest to `close`; any thread may."""
        supervisor, pid = self._supervisor, self._pid
        if pid is not None:
            _kill_group(pid)
        elif supervisor is not None and supervisor.returncode is None:
            _kill_group(supervisor.pid)

    def close(self) -> None:
        """Kill the process, if one runs, and remove its temporary files."""
        self.kill()
        supervisor, connection, noise, folder = self._supervisor, self._connection, self._noise, self._folder
        self._supervisor = self._connection = self._noise = self._folder = self._pid = None
        if connection is not None:
            connection.close()
        if supervisor is not None:
            try:
                supervisor.wait(_LEAVE_SECONDS)  # it sees the connection closed
            except subprocess.TimeoutExpired:
                _kill_group(supervisor.pid)
                supervisor.wait()
        if noise is not None:
            noise.close()
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
            raise EOFError("what came is no message") from error  # somebody else wrote to the connection
        if kind == _ENDED:
            self._pid = None
            raise self._died(value)
        if kind == _RAISED:
            raise WorkerFailed(*value)
        return value

    def _watch(self, memory_bytes: float) -> None:
        assert self._folder is not None
        taken = {"memory": (self.memory_bytes(), memory_bytes), "disk": (_size(self._folder.name), self._disk_bytes)}
        for what, (used, allowed) in taken.items():
            if used > allowed:
                message = f"it took {used / 2**30:.2f} GiB of {what} where {allowed / 2**30:.2f} GiB are allowed"
                raise WorkerExceeded(message, self._last_lines())

    def _environment(self, folder: str) -> dict[str, str]:
        """Ours, with `env` applied."""
        merged = {**os.environ, "PYTHONPATH": import_path(), "TMPDIR": folder, **self._env}
        return {name: value for name, value in merged.items() if value is not None}

    def _forget_noise(self) -> None:
        self._noise.seek(0)  # the offset is shared with the worker
        self._noise.truncate()

    def _last_lines(self) -> list[str]:
        end = self._noise.seek(0, os.SEEK_END)
        self._noise.seek(max(0, end - 4096))
        lines = [one_line(line) for line in self._noise.read().decode(errors="replace").splitlines()]
        return [line for line in lines if line][-LAST_LINES:]

    def _end_child(self) -> None:
        """Kill the child and hear from the supervisor that it is gone; one that cannot tell goes too."""
        self.kill()
        with suppress(WorkerError, EOFError, OSError):
            while self._pid is not None:
                self._receive(_DEATH_SECONDS)
        if self._pid is not None:
            self.close()

    def _lost(self) -> WorkerDied:
        """Without a supervisor, or with a connection that means nothing any more, all has to start anew."""
        assert self._supervisor is not None
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(_LEAVE_SECONDS)
        error = self._died(self._supervisor.returncode)
        self.close()
        return error

    def _died(self, code: int | None) -> WorkerDied:
        """How a process ended and the last line that it printed."""
        if code is None:
            how = "broke its connection"
        else:
            how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = self._last_lines()
        return WorkerDied(one_line(f"the process {how}" + (f" after printing: {lines[-1]}" if lines else "")), lines)


class WorkerPool:
    """Up to `size` workers of one entry; calls are queued and run side by side, each within `memory_bytes`.

    With `cores` a call waits for one of them, which other pools, of other processes too, may have taken.
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
        """A future of what `Worker.call` returns or raises."""
        return self._threads.submit(self._call, arguments, timeout)

    def start(self) -> None:
        """Start all workers and return at once."""
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Drop what waits and kill the workers; a call that runs raises `WorkerDied`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._cores is not None:
            self._cores.close()
        for worker in self._workers:
            worker.kill()  # its thread, if it has one, sees the end and reaps it
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


def _never_wait_long(connection: Connection) -> None:
    """A message that has begun goes on coming, or it is none: reading then fails with `BlockingIOError`."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(_LEAVE_SECONDS), 0))


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the latter of a group of which only zombies are left
        os.killpg(leader, signal.SIGKILL)


def _main(descriptor: str, folder: str, entry: str, *imports: str) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is expected now and then, and leaves no file
    for module in imports:
        importlib.import_module(module)
    module, _, name = entry.partition(":")
    function = getattr(importlib.import_module(module), name)
    _supervise(Connection(int(descriptor)), function, folder)


def _supervise(connection: Connection, function: Callable[..., Any], folder: str) -> NoReturn:
    """Keep a child that answers, until the other side hangs up."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # by Python's own handler, so that the pipe is written to
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(connection.fileno(), 0)  # a hang-up is told always; requests are for the child
    warnings.simplefilter("ignore", DeprecationWarning)  # of forking where a library has started threads
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
    """The child's exit code, as `subprocess` has it, once it has ended; None where the other side has. Nothing that it
    had started is left either way."""
    while True:
        told = {descriptor for descriptor, _ in poll.poll()}
        hung_up = bool(told - {reading})
        with suppress(BlockingIOError):
            os.read(reading, 4096)
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        if ended or hung_up:
            _kill_group(child)
            _, status = os.waitpid(child, 0)
            return None if hung_up else os.waitstatus_to_exitcode(status)


def _live(connection: Connection, function: Callable[..., Any]) -> NoReturn:
    """Serve, and leave without what an interpreter does at its end: it is the supervisor's to do."""
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
    """Answer requests until the other side is gone; not those that were for a process that ended before it read them,
    whose sender has heard of its end."""
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
