"""Compression of answers over 4 KB for clients that accept gzip. Look-ups from memory never get here.

Long bodies are compressed in a thread, since the event loop answers nobody meanwhile.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable

from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Compression"]

_LEAST = 4096
_IN_THREAD = 65_536
"""Bytes of a body above which a thread compresses it."""
_LEVEL = 1
"""Higher levels take several times as long, and make the columns of a landscape little smaller."""
_KINDS = (b"text/", b"application/json", b"application/problem+json", b"application/x-ndjson", b"image/svg+xml")
_GZIP = 31
"""zlib's window of 32 KiB, with gzip's header and trailer."""

_Headers = Iterable[tuple[bytes, bytes]]


class Compression:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        varying = _varying(send)
        await self._app(scope, receive, _Compressor(varying).send if _accepts(scope["headers"]) else varying)


def _varying(send: Send) -> Send:
    """Tell caches of every answer that might be compressed, plain ones too, that it depends on the client."""

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"]
            if message["status"] == 304 or _is_compressible(message) or (b"content-encoding", b"gzip") in headers:
                message = {**message, "headers": [*headers, (b"vary", b"accept-encoding")]}
        await send(message)

    return tell


class _Compressor:
    """One answer. Its head waits for the first part of the body, which shows whether it is worth compressing."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None
        self._stream: zlib._Compress | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_compressible(message):
            self._head = message
        elif self._head is not None and message["type"] == "http.response.body":
            head, self._head = self._head, None
            await self._begin(head, message)
        elif self._stream is not None:
            await self._go_on(message)
        else:
            await self._send(message)

    async def _begin(self, head: Message, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if not more and len(body) < _LEAST:
            await self._send(head)
            await self._send(message)
            return
        if more:
            self._stream = zlib.compressobj(_LEVEL, wbits=_GZIP)
            await self._send({**head, "headers": _encoded(head["headers"], None)})
            first = self._stream.compress(body) + self._stream.flush(zlib.Z_SYNC_FLUSH)  # the client need not wait
            await self._send({**message, "body": first})
            return
        packed = await to_thread.run_sync(_pack, body) if len(body) > _IN_THREAD else _pack(body)
        await self._send({**head, "headers": _encoded(head["headers"], len(packed))})
        await self._send({**message, "body": packed})

    async def _go_on(self, message: Message) -> None:
        assert self._stream is not None, "only a stream goes on"
        body, more = message.get("body", b""), message.get("more_body", False)
        packed = self._stream.compress(body)
        await self._send({**message, "body": packed if more else packed + self._stream.flush()})


def _accepts(headers: _Headers) -> bool:
    """Return whether gzip is among the encodings that the client takes, and not refused by `q=0`."""
    for name, value in headers:
        if name == b"accept-encoding":
            for each in value.lower().replace(b" ", b"").split(b","):
                encoding, _, weight = each.partition(b";q=")
                if encoding in (b"gzip", b"*"):
                    return weight.strip(b"0.") != b"" if weight else True
    return False


def _is_compressible(head: Message) -> bool:
    names = dict(head["headers"])
    kind = names.get(b"content-type", b"")
    return (
        head["status"] not in (204, 206, 304)
        and b"content-encoding" not in names
        and kind.startswith(_KINDS)
        and not kind.startswith(b"text/event-stream")
    )


def _encoded(headers: _Headers, length: int | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of the compressed body. Its entity tag is weak: the same one names the plain body."""
    kept = [
        (name, b"W/" + value if name == b"etag" and not value.startswith(b"W/") else value)
        for name, value in headers
        if name not in (b"content-length", b"accept-ranges")
    ]
    kept.append((b"content-encoding", b"gzip"))
    return kept if length is None else [*kept, (b"content-length", b"%d" % length)]


def _pack(body: bytes) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)
