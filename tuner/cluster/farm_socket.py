"""The socket at which a host's compile processes ask for artefacts of the farm."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from types import TracebackType
from typing import Self

from tilewise.tuner.workers.farm import FAMILY, Order, key_of, name_of
from tilewise.tuner.workers.worker import one_line

__all__ = ["FarmSocket"]

_log = logging.getLogger(__name__)


class FarmSocket:
    """Answers the orders of this host's processes by `made` until it is closed, each connection in a thread.

    `address` is the value of `TILEWISE_FARM` for them, and a secret: who knows it can run code in this process. `why`
    says why the last order was not made, and is empty if it was: then its process compiles here.
    """

    def __init__(self, made: Callable[[Order], bytes | None]) -> None:
        self._made = made
        self.address = f"{uuid.uuid4().hex}:{secrets.token_hex(16)}"
        self.why = ""
        self._listener = Listener(name_of(self.address), FAMILY, backlog=64, authkey=key_of(self.address))
        self._closing = threading.Event()
        self._accepting = threading.Thread(target=self._accept, daemon=True, name="farm-socket")
        self._accepting.start()

    def close(self) -> None:
        self._closing.set()
        with suppress(OSError), socket.socket(socket.AF_UNIX) as one:  # which the thread that accepts waits for
            one.connect(name_of(self.address))
        self._accepting.join()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection = self._listener.accept()
            except (OSError, EOFError, AuthenticationError):  # one that left, or does not know the key
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True, name="farm-order").start()

    def _serve(self, connection: Connection) -> None:
        with connection, suppress(OSError, EOFError):  # the process has ended
            connection.send(self._answer(connection.recv()))

    def _answer(self, order: Order) -> bytes | None:
        try:
            content = self._made(order)
        except Exception as error:  # of many types: Ray's, and what a node raised
            why = one_line(f"{type(error).__name__}: {error}")
            if why != self.why:
                _log.warning("the farm did not make an artefact, which is compiled here: %s", why)
            self.why = why
            return None
        self.why = ""
        return content
