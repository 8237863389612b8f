"""Several processes that serve one port: forks of this one, which starts those again that end, and ends with them."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from tilewise.api.service.shared_memory import SharedTable
from tilewise.errors import TilewiseError, Unavailable

__all__ = ["Group"]

Serve = Callable[[int, Callable[[str], None]], None]

_ENDS = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_ENDS, signal.SIGCHLD, signal.SIGUSR1)
"""Those that the first process waits for; the last one says that another is ready."""

_PR_SET_PDEATHSIG = 1
_DRAIN_SECONDS = 60.0
_REST_SECONDS = 1.0
"""Least time between two starts of a process, so that one that ends at once does not keep a core busy."""

_log = logging.getLogger(__name__)


class Group:
    """One process for each of `listeners`, which has the port to itself and others, and to which the kernel deals its
    part of the connections. Those that come for a process that ended wait for its successor.

    A process calls `serve` with its number and a function that tells that it is ready; `ready` is called once all are.
    `ended` gets the id of each process that ended.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        serve: Serve,
        ready: Callable[[str], None],
        ended: Callable[[int], None],
    ) -> None:
        self._listeners, self._serve, self._ready, self._ended = listeners, serve, ready, ended
        self._is_ready = SharedTable("=?", len(listeners))
        self._numbers: dict[int, int] = {}
        self._starts = dict.fromkeys(range(len(listeners)), 0.0)
        """When each of the processes that do not run may be started."""
        self._started: dict[int, float] = {}
        self._mask: set[signal.Signals | int] = set()
        self._pid = os.getpid()

    def run(self, address: str) -> None:
        """Serve until SIGTERM; on SIGINT, raise `KeyboardInterrupt`. Either way all processes end their requests first.

        Raises `Unavailable` if a process ends before all were ready once.
        """
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        gc.freeze()  # what is imported by now stays in memory once
        try:
            number = self._watch(address)
        finally:
            for listener in self._listeners:
                listener.close()
            self._end()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    def _watch(self, address: str) -> int:
        """Keep all processes running until one of `_ENDS` arrives, and return it."""
        announced = False
        while True:
            for number in [number for number, start in self._starts.items() if start <= time.monotonic()]:
                self._start(number)
            got = signal.sigtimedwait(_SIGNALS, _REST_SECONDS / 4)
            if got is not None and got.si_signo in _ENDS:
                return got.si_signo
            for number, how in self._reap():
                if not announced:
                    raise Unavailable(f"a process of the server ended with {how} before all were ready; see its log")
                _log.error("process %d of the server ended with %s; it is started again", number, how)
                self._starts[number] = self._started[number] + _REST_SECONDS
            if not announced and all(ready for (ready,) in self._is_ready.all()):
                announced = True
                self._ready(address)

    def _start(self, number: int) -> None:
        del self._starts[number]
        self._started[number] = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            self._numbers[pid] = number
        else:
            self._become(number)

    def _become(self, number: int) -> None:
        """Serve as process `number`, and never return."""
        code = 1
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != self._pid:
                os._exit(1)
            for listener in self._listeners:
                if listener is not self._listeners[number]:
                    listener.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            self._serve(number, partial(self._tell_ready, number))
            code = 0
        except KeyboardInterrupt:
            code = 0
        except SystemExit as error:  # uvicorn has logged why
            code = error.code if isinstance(error.code, int) else 1
        except TilewiseError as error:
            _log.error("%s", error)
        except BaseException:
            _log.exception("process %d of the server", number)
        finally:
            os._exit(code)

    def _tell_ready(self, number: int, _: str) -> None:
        self._is_ready[number] = (True,)
        os.kill(self._pid, signal.SIGUSR1)

    def _reap(self) -> list[tuple[int, str]]:
        """Return the numbers of processes that ended, and how."""
        found = []
        for pid in list(self._numbers):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                self._ended(pid)
                code = os.waitstatus_to_exitcode(status)
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                found.append((self._numbers.pop(pid), how))
        return found

    def _end(self) -> None:
        """End all processes: by SIGTERM, and those that take too long, or that a further signal asks for, at once."""
        self._send(signal.SIGTERM)
        latest = time.monotonic() + _DRAIN_SECONDS
        while self._numbers:
            got = signal.sigtimedwait(_SIGNALS, max(0.0, latest - time.monotonic()))
            if got is None or got.si_signo in _ENDS:
                self._send(signal.SIGKILL)
                latest = time.monotonic() + _DRAIN_SECONDS
            self._reap()

    def _send(self, number: int) -> None:
        for pid in self._numbers:
            os.kill(pid, number)
