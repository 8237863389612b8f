"""The service on uvicorn: one process, ready line, clean end."""

from __future__ import annotations

import ctypes
import signal
import socket
from collections.abc import Callable

import uvicorn

from tilewise.api.app import create_app
from tilewise.api.http import logs
from tilewise.api.service.service import Options

__all__ = ["one_arena", "run"]

_M_ARENA_MAX = -8
"""Of glibc's malloc.h."""


def run(
    store_url: str,
    listener: socket.socket,
    ready: Callable[[str], None],
    *,
    options: Options | None = None,
    log_level: str = "info",
) -> None:
    """Serve on `listener` until SIGTERM or SIGINT; `ready` is called with the address once requests are answered.

    Requests in flight get 5 seconds. SIGTERM is how services are stopped, so it ends the call; SIGINT raises
    `KeyboardInterrupt`.
    """
    one_arena()
    logs.configure(log_level)
    config = uvicorn.Config(
        create_app(store_url, options),
        loop="uvloop",  # the asyncio loop takes 44 ms a request on kept-alive connections
        http="httptools",
        lifespan="on",
        log_config=None,  # `logs` did it
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    # uvicorn raises the signal that stopped it once more when it is done.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        _Server(config, ready).run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)


def one_arena() -> None:
    """Let all threads allocate from one heap, where the C library is glibc, which gives each its own: what one frees,
    others do not use, and a service under every kind of request at once grows for as long as anybody looks. Threads
    wait for each other's allocations then, but the interpreter has them take turns anyway."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            self._ready(_url(listener))


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
