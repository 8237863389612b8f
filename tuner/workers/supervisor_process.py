"""Runs in a supervisor: imports once, forks a child for each worker, reports how a child ended and forks another.

Workers arrive over the control socket, one message each: its temporary folder, its connection and its output file. The
supervisor only waits. The child of a worker keeps nothing of the other workers, and dies with the supervisor.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from tilewise.tuner.workers.supervisor import kill_group
from tilewise.tuner.workers.worker import ANSWER, ENDED, RAISED, READY, describe

__all__: list[str] = []

_PR_SET_PDEATHSIG = 1


@dataclass(eq=False)
class _Place:
    """A worker on this side: its connection, output file and temporary folder, and the id of its child."""

    connection: Connection
    output: int
    folder: str
    child: int = 0
    abandoned: bool = False
    """The other side hung up, so no other child is forked."""

    def close(self) -> None:
        self.connection.close()
        os.close(self.output)


class _Places:
    """The workers of a supervisor and all that it waits for."""

    def __init__(self, control: socket.socket, function: Callable[..., Any], folder: str) -> None:
        self._control, self._function, self._folder = control, function, folder
        self._places: dict[int, _Place] = {}
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # Python's own handler writes to the pipe
        signal.set_wakeup_fd(self._writing)
        self._poll = select.poll()
        self._poll.register(self._reading, select.POLLIN)
        self._poll.register(control, select.POLLIN)
        self._libc, self._pid = ctypes.CDLL(None), os.getpid()

    def serve(self) -> NoReturn:
        """Keep a child for every worker until the other side of the control socket hangs up."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._reading:
                    with suppress(BlockingIOError):
                        os.read(self._reading, 4096)
                elif descriptor == self._control.fileno():
                    self._adopt()
                else:
                    self._abandon(self._places[descriptor])
            for place in list(self._places.values()):
                if os.waitid(os.P_PID, place.child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                    self._replace(place)

    def _adopt(self) -> None:
        """Take over one more worker, or leave if there will be none."""
        folder, descriptors = b"", list[int]()
        with suppress(ConnectionResetError):  # hung up without having read that this process is ready
            folder, descriptors, _, _ = socket.recv_fds(self._control, 4096, 2, socket.MSG_CMSG_CLOEXEC)
        if not folder:
            self._leave()
        connection, output = descriptors
        place = self._places[connection] = _Place(Connection(connection), output, folder.decode())
        self._poll.register(connection, 0)  # a hang-up is always reported; requests are for the child
        self._fork(place)

    def _abandon(self, place: _Place) -> None:
        self._poll.unregister(place.connection.fileno())
        place.abandoned = True
        _kill(place)

    def _replace(self, place: _Place) -> None:
        """Report how a child ended and fork another, or forget the worker if its other side is gone."""
        code = _buried(place)
        if not place.abandoned and _told(place.connection, code):
            self._fork(place)
            return
        if not place.abandoned:
            self._poll.unregister(place.connection.fileno())
        del self._places[place.connection.fileno()]
        place.close()

    def _leave(self) -> NoReturn:
        for place in self._places.values():
            _kill(place)
        for place in self._places.values():
            _buried(place)
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(0)

    def _fork(self, place: _Place) -> None:
        sys.stdout.flush()
        os.makedirs(place.folder, exist_ok=True)
        place.child = os.fork()
        if place.child == 0:
            _live(lambda: self._become(place), place.connection, self._function)

    def _become(self, place: _Place) -> None:
        """Turn this new process into the child of one worker."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._pid:
            sys.exit(1)
        for descriptor in (self._reading, self._writing, self._control.detach()):
            os.close(descriptor)
        for other in self._places.values():
            if other is not place:
                other.close()
        os.dup2(place.output, 1)
        os.dup2(place.output, 2)
        os.close(place.output)
        os.environ["TMPDIR"] = tempfile.tempdir = place.folder


def _kill(place: _Place) -> None:
    """Kill a child and all that it has started."""
    os.kill(place.child, signal.SIGKILL)  # it may not lead its group yet
    kill_group(place.child)


def _buried(place: _Place) -> int:
    """Wait for a child to end and return its exit code as `subprocess` does. Nothing that it has started is left."""
    kill_group(place.child)
    _, status = os.waitpid(place.child, 0)
    shutil.rmtree(place.folder, ignore_errors=True)
    return os.waitstatus_to_exitcode(status)


def _told(connection: Connection, code: int) -> bool:
    """Send how a child ended; return False if the other side is gone or does not read what the child has written."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLOUT)
    with suppress(OSError):
        if any(event & select.POLLOUT for _, event in poll.poll(0)):
            connection.send((ENDED, code))
            return True
    return False


def _live(become: Callable[[], None], connection: Connection, function: Callable[..., Any]) -> NoReturn:
    """Serve requests, then end without the interpreter's clean-up, which is the supervisor's to do."""
    code = 0
    try:
        become()
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
    connection.send((READY, me := os.getpid()))
    while True:
        try:
            addressee, arguments = connection.recv()
        except EOFError:
            return
        if addressee == me:
            connection.send(_answer(function, arguments))


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return ANSWER, function(*arguments)
    except Exception as error:
        return RAISED, (type(error).__name__, describe(error))


def _at(place: str) -> Any:
    """Import `package.module`, or `package.module:function` and return the function."""
    module, _, name = place.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, name) if name else imported


def _main(descriptor: str, folder: str, entry: str, *imports: str) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected; they leave no core file
    control = socket.socket(fileno=int(descriptor))
    for place in imports:
        if callable(found := _at(place)):
            found()
    function = _at(entry)
    warnings.simplefilter("ignore", DeprecationWarning)  # about forking after a library has started threads
    places = _Places(control, function, folder)
    control.send(READY.encode())
    places.serve()


if __name__ == "__main__":
    _main(*sys.argv[1:])
