"""The service on uvicorn: one process or several, a ready line, a clean shutdown."""

from __future__ import annotations

import ctypes
import gc
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import uvicorn

from tilewise.api.app import create_app
from tilewise.api.group import Group
from tilewise.api.http import logs
from tilewise.api.http.connections import Connections, most_connections
from tilewise.api.http.protocol import Protocol
from tilewise.api.service.service import Options
from tilewise.api.service.siblings import Siblings

__all__ = ["listeners", "one_arena", "run"]

_M_ARENA_MAX = -8
"""From glibc's malloc.h."""

_SWITCH_SECONDS = 0.001
"""Time that a thread computes before another gets its turn. The event loop waits as long for each thread that does;
Python's default is 5 ms."""

_ACCEPTS = 16
"""New connections per turn of the event loop."""


def run(
    store_url: str,
    ports: Sequence[socket.socket],
    ready: Callable[[str], None],
    *,
    options: Options | None = None,
    proxies: Sequence[str] = (),
    log_level: str = "info",
) -> None:
    """Serve with a process for each of `ports`, sockets that listen at the same address, until SIGTERM or SIGINT.

    Call `ready` with the address once requests are answered. Requests in flight get 5 seconds. On SIGTERM, the normal
    way to stop a service, the call returns; on SIGINT it raises `KeyboardInterrupt`. `proxies` are addresses and
    networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    """
    options = options or Options()
    logs.configure(log_level)
    if len(ports) == 1:
        _serve(store_url, ports[0], ready, options, proxies, Siblings(options.writes_a_minute))
        return
    with tempfile.TemporaryDirectory(prefix="tilewise-serve-") as folder:
        siblings = Siblings(options.writes_a_minute, len(ports), Path(folder))

        def serve(number: int, ready: Callable[[str], None]) -> None:
            siblings.number = number
            _serve(store_url, ports[number], ready, options, proxies, siblings)

        Group(ports, serve, ready, siblings.limits.forget).run(_url(ports[0]))


def _serve(
    store_url: str,
    listener: socket.socket,
    ready: Callable[[str], None],
    options: Options,
    proxies: Sequence[str],
    siblings: Siblings,
) -> None:
    one_arena()
    sys.setswitchinterval(_SWITCH_SECONDS)
    config = uvicorn.Config(
        create_app(store_url, options, siblings),
        loop="uvloop",  # the asyncio loop takes 44 ms per request on keep-alive connections
        http=cast("type[Protocol]", partial(Protocol, peers=Connections(most_connections()))),
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        lifespan="on",
        log_config=None,  # `logs.configure` has set it
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    # When uvicorn is done, it raises the signal that stopped it again.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        _Server(config, ready).run(sockets=listeners(listener))
    finally:
        signal.signal(signal.SIGTERM, before)


def listeners(listener: socket.socket) -> list[socket.socket]:
    """Return sockets that all listen where `listener` does, itself among them.

    The event loop accepts one connection a turn for each. With a single one, the last of 64 connections that came at
    once waited for 64 turns full of the others' requests: for 0.4 s, so that p99 was 20 times p50.
    """
    return [listener, *(listener.dup() for _ in range(1, _ACCEPTS))]


def one_arena() -> None:
    """Make all threads allocate from one heap if the C library is glibc.

    By default glibc gives each thread its own heap, and other threads do not use the memory that it frees: a service
    under a mix of requests grew for as long as it was watched. Threads now wait for each other's allocations, but the
    interpreter makes them take turns anyway.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()  # otherwise each full collection goes through all modules, which holds up requests for 70 ms
        for listener in (sockets or [])[:1]:
            self._ready(_url(listener))


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
