"""HTTP on a connection: uvicorn's protocol, with limits, and with answers sent whole, one turn's all together.

uvicorn writes head and body one after the other, and uvloop hands each write to the system at once. That makes two
packets, and each wakes the client, which then waits for the next: a third of the time of first-time look-ups.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tilewise.api.http.connections import BODY_SECONDS, HEAD_SECONDS, READ_SECONDS, Connections

__all__ = ["Protocol"]

_LARGEST_HEAD = 64 << 10
_LEAST_RATE = 1000.0
"""Bytes of a body per second."""

_MOST_KEPT = 16 << 10
"""Bytes of an answer kept for the event loop's next turn. What is sent at once is subject to the client's pace."""

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n"


class Protocol(HttpToolsProtocol):
    """One connection of `peers`."""

    deadline = math.inf
    _in_head = _in_body = False
    _body_ends = 0.0
    _head_bytes = 0

    def __init__(self, *arguments: Any, peers: Connections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._peers = peers

    # Events of the transport -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Joining(transport, self.loop))  # type: ignore[arg-type]
        self.deadline = self.loop.time() + HEAD_SECONDS
        self._peers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _LARGEST_HEAD and not self.transport.is_closing():
            self._end_with(_TOO_LARGE)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.deadline = self.loop.time() + READ_SECONDS

    def resume_writing(self) -> None:
        super().resume_writing()
        self._rest()

    # Events of the parser --------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self.deadline = self.loop.time() + HEAD_SECONDS

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_head, self._in_body, self._head_bytes = False, True, 0
        self.deadline = self._body_ends = self.loop.time() + BODY_SECONDS

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._body_ends += len(body) / _LEAST_RATE
        self.deadline = min(self._body_ends, self.loop.time() + BODY_SECONDS)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body = False
        self._rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._rest()

    # Limits ----------------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def is_new(self) -> bool:
        return self.cycle is None

    def expire(self) -> None:
        """End the connection, with an answer if a request has begun to arrive; abort one that ends too slowly."""
        if self.transport.is_closing():
            self.transport.abort()
        elif (self._in_head or self._in_body) and not self._has_begun_to_answer():
            self._end_with(_TOO_SLOW)
        else:
            self._end_with(b"")

    def drop(self) -> None:
        self.transport.abort()

    def _has_begun_to_answer(self) -> bool:
        return self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete

    def _rest(self) -> None:
        """Set the deadline of a client that has sent a request: there is none until the answer is complete."""
        if not self._in_body:
            answered = self.cycle is None or self.cycle.response_complete
            self.deadline = self.loop.time() + HEAD_SECONDS if answered else math.inf

    def _end_with(self, answer: bytes) -> None:
        if answer:
            self.transport.write(answer)
        self.transport.close()
        self.deadline = self.loop.time() + READ_SECONDS


class _Joining:
    """A transport that keeps an answer until the event loop's next turn, or until it is large.

    The answers of all connections that had a request in this turn are then sent one right after the other.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._kept = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._kept:
            self._loop.call_soon(self._flush)
        self._kept += data
        if len(self._kept) >= _MOST_KEPT:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        kept, self._kept = self._kept, b""
        if kept and not self._transport.is_closing():  # the client may have left
            self._transport.write(kept)
