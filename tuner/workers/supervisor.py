"""The process that imports what workers need and forks a child for each of them; `supervisor_process` runs in it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import IO

__all__ = [
    "LEAVE_SECONDS",
    "ONE_THREAD",
    "Supervisor",
    "SupervisorProcess",
    "import_path",
    "in_worker",
    "kill_group",
    "tail",
]

LEAVE_SECONDS = 2.0
"""Time for a process to end once it was killed or its connection was closed."""

ONE_THREAD: Mapping[str, str] = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Environment of processes whose arithmetic takes one thread: several run at once, and threads that wait for work spin,
on cores that the others need."""

_MODULE = f"{__name__}_process"


def in_worker() -> bool:
    """Return whether this process is a worker."""
    main = sys.modules.get("__main__")
    return getattr(getattr(main, "__spec__", None), "name", "") == _MODULE


def import_path() -> str:
    """Return this process's import path as a PYTHONPATH: a fresh process might find its modules elsewhere."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


class Supervisor:
    """The process of all workers that share an entry, started for the first of them and again once it has died.

    `entry`, `env` and `imports` are those of `Worker`. Thread-safe.
    """

    def __init__(self, entry: str, *, env: Mapping[str, str | None] | None = None, imports: Sequence[str] = ()) -> None:
        self._words, self._env = (entry, *imports), dict(env or {})
        self._lock = threading.Lock()
        self._process: SupervisorProcess | None = None
        self._closed = False

    def fork(self, connection: Connection, output: IO[bytes]) -> tuple[SupervisorProcess, str]:
        """Have a child answer on `connection` and print to `output`; return its supervisor and its temporary folder.

        Returns at once. The supervisor has its own copies of both. Raises `EOFError` if it was closed for good.
        """
        with self._lock:
            if self._closed:
                raise EOFError("the workers are closed")
            if self._process is None or self._process.ended:
                self._end()
                self._process = SupervisorProcess(self._words, self._env)
            return self._process, self._process.adopt(connection, output)

    def close(self, *, for_good: bool = False) -> None:
        """End the process and all its children, and remove their temporary files."""
        with self._lock:
            self._closed = self._closed or for_good
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
        self._process = None


class SupervisorProcess:
    """One process, running from the start. Thread-safe."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str | None]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._folder = tempfile.TemporaryDirectory(prefix="tilewise-worker-", ignore_cleanup_errors=True)
        merged = {**os.environ, "PYTHONPATH": import_path(), "TMPDIR": self._folder.name, **env}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno()), self._folder.name, *words],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[theirs.fileno()],
                env={name: value for name, value in merged.items() if value is not None},
                start_new_session=True,
            )
        self._lock = threading.Lock()
        self._printed: str | None = None

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def adopt(self, connection: Connection, output: IO[bytes]) -> str:
        """Hand over a worker and return its temporary folder. It is forked once the imports are done."""
        folder = tempfile.mkdtemp(dir=self._folder.name)
        with suppress(ConnectionError):  # the process has died; the caller will find its connection closed
            socket.send_fds(self._control, [folder.encode()], [connection.fileno(), output.fileno()])
        return folder

    def ending(self, seconds: float) -> tuple[int | None, str]:
        """Wait for the process to end; return its exit code and the last text that it printed, or None if it lives."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None, ""
        self.close()
        return self._process.returncode, self._printed or ""

    def give_up(self) -> None:
        """Kill the process if it is still importing."""
        with self._lock:
            if self._printed is None and self._is_importing():
                kill_group(self._process.pid)

    def close(self) -> None:
        """End the process and its children and remove their temporary files."""
        with self._lock:
            if self._printed is not None:
                return
            if self._is_importing():
                kill_group(self._process.pid)
            self._control.close()  # it kills its children, then ends
            try:
                self._process.wait(LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                kill_group(self._process.pid)
                self._process.wait()
            self._printed = tail(self._output)
            self._output.close()
            self._folder.cleanup()

    def _is_importing(self) -> bool:
        """Return whether it has neither reported that its imports are done nor ended."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        return not poll.poll(0)


def tail(output: IO[bytes]) -> str:
    """Return the end of what was printed to a file."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - 4096))
    return output.read().decode(errors="replace")


def kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the latter if only zombies are left in the group
        os.killpg(leader, signal.SIGKILL)
