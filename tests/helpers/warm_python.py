"""Starts processes as forks of one that has imported torch, Triton and web frameworks, which takes seconds each time.

A fork leads its own session and has the folder, environment, import path and files that a fresh process would have. It
imports nothing of this project before that. A process with variables that those packages read while they are imported
has to be a fresh one.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn, TextIO

ADDRESS = "WARM_PYTHON"
"""Names the variable with the path of the socket on which forks are asked for. Forks ask there for more."""

_PACKAGES = (
    *("torch", "triton", "triton.backends.ascend.compiler", "xdsl.parser"),
    *("sqlalchemy.orm", "sqlalchemy.dialects.sqlite", "alembic.command", "rich.table", "rich.progress"),
    *("fastapi", "pydantic", "uvicorn.main", "msgspec", "jinja2"),
)
"""None of them starts a thread, which would not survive a fork, or reads a user's settings when it is imported."""

READ_BY_IMPORTS = ("TRITON_INTERPRET", "LD_PRELOAD", "COVERAGE_PROCESS_START")
_IMPORTING = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


class WarmProcess:
    """A fork, with those methods of `subprocess.Popen` that its users call. Thread-safe."""

    def __init__(self, status: socket.socket) -> None:
        self._status, self._lock = status, threading.Lock()
        self.returncode: int | None = None
        self.pid = self._told()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], 0)[0]:
                self.returncode = self._told()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            select.select([self._status], [], [], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def _told(self) -> int:
        if not (said := self._status.recv(64)):
            raise RuntimeError("the process that forks has ended")
        return int(said)


class WarmCommand(WarmProcess):
    """A fork that runs `tilewise`, with its output as text: what tests use of `subprocess.Popen`."""

    def __init__(self, status: socket.socket, stdout: int, stderr: int) -> None:
        super().__init__(status)
        self.stdout, self.stderr = os.fdopen(stdout), os.fdopen(stderr)
        self._readers: list[threading.Thread] = []
        self._rest: dict[TextIO, str] = {}

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended and not been told of yet
            if self.poll() is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and return what was left to read. A process may wait for its output to be read, and leave
        it to children that go on."""
        give_up = None if timeout is None else time.monotonic() + timeout
        for file in self._files[len(self._readers) :]:
            self._readers.append(threading.Thread(target=self._read, args=(file,), daemon=True))
            self._readers[-1].start()
        self.wait(timeout)
        for reader in self._readers:
            reader.join(None if give_up is None else max(0.0, give_up - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        for closed in (*self._files, self._status):
            closed.close()
        return self._rest[self.stdout], self._rest[self.stderr]

    def _read(self, file: TextIO) -> None:
        self._rest[file] = "" if file.closed else file.read()

    @property
    def _files(self) -> tuple[TextIO, TextIO]:
        return self.stdout, self.stderr


class WarmPython:
    """The process that forks, seen from the tests. The first fork starts it. Tests inherit its address."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tilewise-warm-")
        self._server: subprocess.Popen[bytes] | None = None
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._address = os.environ[ADDRESS] = str(Path(self._folder.name, "socket"))

    def start(self) -> None:
        with self._lock:
            if self._server is not None or os.getpid() != self._pid:
                return
            environment = {**os.environ, **_IMPORTING}
            environment.pop("PYTHONPATH", None)  # each fork has its own
            with _socket() as listening:
                listening.bind(self._address)
                listening.listen(64)
                self._server = subprocess.Popen(
                    [sys.executable, "-P", __file__, str(listening.fileno())],
                    stdin=subprocess.PIPE,  # closed when this process ends, for whatever reason
                    pass_fds=[listening.fileno()],
                    env=environment,
                    start_new_session=True,
                )

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
    ) -> tuple[int, str, str]:
        """Return the exit code of `tilewise` with these words, and the text on its stdout and stderr."""
        self.start()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(os.devnull) as null:
            files = [file.fileno() for file in (null, out, err)]
            process = _fork("command", words, files, folder=str(folder), environment=dict(environment))
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise TimeoutError(f"tilewise {' '.join(words)} has not ended after {seconds:g} s") from None
            for file in (out, err):
                file.seek(0)
            return code, out.read(), err.read()

    def command(self, *words: str) -> WarmCommand:
        """Start `tilewise` with these words, with the folder and environment of this process."""
        self.start()
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        with open(os.devnull) as null, os.fdopen(its_out, "w"), os.fdopen(its_err, "w"):
            files, request = [null.fileno(), its_out, its_err], {"folder": os.getcwd(), "environment": dict(os.environ)}
            return WarmCommand(_asked("command", words, files, **request), out, err)

    def close(self) -> None:
        os.environ.pop(ADDRESS, None)
        if self._server is not None:
            self._server.communicate()
        self._folder.cleanup()


def start_supervisor(
    command: Sequence[str],
    *,
    stdin: int,
    stdout: IO[bytes],
    stderr: IO[bytes],
    pass_fds: Sequence[int],
    env: Mapping[str, str],
    start_new_session: bool,
) -> WarmProcess | subprocess.Popen[bytes]:
    """Do for `SupervisorProcess` what `subprocess.Popen` does, if possible in a fork."""
    files = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    if any(map(env.get, READ_BY_IMPORTS)) or not os.path.exists(os.environ.get(ADDRESS, "")):
        return subprocess.Popen(command, pass_fds=pass_fds, env=env, start_new_session=start_new_session, **files)
    assert stdin == subprocess.DEVNULL and start_new_session
    *interpreter, module, _ = command[:5]
    assert interpreter == [sys.executable, "-P", "-m"], command
    with open(os.devnull, "rb") as null:
        descriptors = [null.fileno(), stdout.fileno(), stderr.fileno(), *pass_fds]
        return _fork(module, command[4:], descriptors, folder=os.getcwd(), environment=dict(env))


def subprocess_of_supervisors(warm: WarmPython | None) -> SimpleNamespace:
    """Return what takes the place of `subprocess` in the module that starts supervisors."""

    def popen(*words: Any, **keywords: Any) -> WarmProcess | subprocess.Popen[bytes]:
        if warm is not None:
            warm.start()
        return start_supervisor(*words, **keywords)

    return SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _fork(module: str, words: Sequence[str], descriptors: Sequence[int], **request: Any) -> WarmProcess:
    return WarmProcess(_asked(module, words, descriptors, **request))


def _asked(module: str, words: Sequence[str], descriptors: Sequence[int], **request: Any) -> socket.socket:
    """Have a fork run a module with those files as its 0, 1 and 2; any others keep their numbers. Return the socket
    that tells its number and how it ends."""
    connection = _socket()
    connection.connect(os.environ[ADDRESS])
    message = json.dumps({"module": module, "words": list(words), "kept": list(descriptors[3:]), **request})
    socket.send_fds(connection, [message.encode()], descriptors)
    return connection


# In the process that forks --------------------------------------------------------------------------------------------


def _serve(listening: socket.socket) -> None:
    """Fork for each connection; in a fork, run what was asked for."""
    for name in _PACKAGES:
        with suppress(ModuleNotFoundError):  # Triton's backends differ
            importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "an imported package has started a thread"
    gc.freeze()  # a collection in a fork need not look at all this
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # Python's own handler writes to the pipe
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    children: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listening, reading, sys.stdin], [], [])
        if reading in ready:
            with suppress(BlockingIOError):
                os.read(reading, 4096)
            _report(children)
        if sys.stdin in ready:
            return
        if listening in ready:
            connection, _ = listening.accept()
            message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 8)
            if not (child := os.fork()):
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (listening, connection, *children.values()):
                    other.close()
                os.close(reading)
                os.close(writing)
                _become(descriptors, **json.loads(message))
            for descriptor in descriptors:
                os.close(descriptor)
            children[child] = connection
            connection.send(b"%d" % child)


def _report(children: dict[int, socket.socket]) -> None:
    """Say of each child that has ended how it did."""
    while children and os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
        child, status = os.wait()
        with children.pop(child) as connection, suppress(ConnectionError):
            connection.send(b"%d" % os.waitstatus_to_exitcode(status))


def _become(
    descriptors: list[int], module: str, words: list[str], kept: list[int], folder: str, environment: dict[str, str]
) -> NoReturn:
    os.setsid()
    for descriptor, number in zip(
        [_above_all(descriptor) for descriptor in descriptors], (0, 1, 2, *kept), strict=True
    ):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    command = module == "command"
    sys.path[:0] = [*([""] if command else []), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = ["-c" if command else module, *words]
    importlib.invalidate_caches()
    code: str | int | None = 0
    try:
        if command:
            _command(words)
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        code = error.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)  # taking torch apart would take half a second


def _above_all(descriptor: int) -> int:
    """Move a file out of the way of the numbers that others are to have."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 512)
    os.close(descriptor)
    return moved


def _command(words: list[str]) -> None:
    """Run `tilewise`, whose workers' supervisors are forks too."""
    from tilewise.cli import main  # reads the settings of this command
    from tilewise.tuner.workers import supervisor

    supervisor.subprocess = subprocess_of_supervisors(None)  # type: ignore[attr-defined]
    main(words)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        _serve(listening)
