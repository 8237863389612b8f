"""Compression of answers over 4 KB for clients that accept zstd or gzip. Look-ups from memory never get here.

Long bodies are compressed in a thread, since the event loop answers nobody meanwhile.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import zstandard
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


@dataclass(frozen=True, slots=True)
class _Encoding:
    """A way to compress a whole body, or parts of one: `stream` returns a function that takes a part and whether it is
    the last. A client can read each part as it comes."""

    name: bytes
    pack: Callable[[bytes], bytes]
    stream: Callable[[], Callable[[bytes, bool], bytes]]


def _gzip_stream() -> Callable[[bytes, bool], bytes]:
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    return lambda part, last: packer.compress(part) + packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)


def _zstd_stream() -> Callable[[bytes, bool], bytes]:
    packer = zstandard.ZstdCompressor(_LEVEL).compressobj()
    finish, block = zstandard.COMPRESSOBJ_FLUSH_FINISH, zstandard.COMPRESSOBJ_FLUSH_BLOCK
    return lambda part, last: packer.compress(part) + packer.flush(finish if last else block)


_ENCODINGS = (
    _Encoding(b"zstd", lambda body: zstandard.compress(body, _LEVEL), _zstd_stream),
    _Encoding(b"gzip", lambda body: gzip.compress(body, _LEVEL, mtime=0), _gzip_stream),
)
"""The first of those that a client likes best is taken: zstd is quicker and smaller."""


class Compression:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        varying = _varying(send)
        encoding = _accepted(scope["headers"])
        await self._app(scope, receive, _Compressor(varying, encoding).send if encoding else varying)


def _varying(send: Send) -> Send:
    """Tell caches of every answer that might be compressed, plain ones too, that it depends on the client."""

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"]
            if (
                message["status"] == 304
                or _is_compressible(message)
                or any((b"content-encoding", each.name) in headers for each in _ENCODINGS)
            ):
                message = {**message, "headers": [*headers, (b"vary", b"accept-encoding")]}
        await send(message)

    return tell


class _Compressor:
    """One answer. Its head waits for the first part of the body, which shows whether it is worth compressing."""

    def __init__(self, send: Send, encoding: _Encoding) -> None:
        self._send, self._encoding = send, encoding
        self._head: Message | None = None
        self._stream: Callable[[bytes, bool], bytes] | None = None

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
        name, pack = self._encoding.name, self._encoding.pack
        if more:
            self._stream = self._encoding.stream()
            await self._send({**head, "headers": _encoded(head["headers"], name, None)})
            await self._send({**message, "body": self._stream(body, False)})
            return
        packed = await to_thread.run_sync(pack, body) if len(body) > _IN_THREAD else pack(body)
        await self._send({**head, "headers": _encoded(head["headers"], name, len(packed))})
        await self._send({**message, "body": packed})

    async def _go_on(self, message: Message) -> None:
        assert self._stream is not None, "only a stream goes on"
        last = not message.get("more_body", False)
        await self._send({**message, "body": self._stream(message.get("body", b""), last)})


def _accepted(headers: _Headers) -> _Encoding | None:
    """Return the encoding that the client likes best; None if it takes neither. `q=0` refuses one."""
    weights: dict[bytes, float] = {}
    for name, value in headers:
        if name == b"accept-encoding":
            for each in value.lower().replace(b" ", b"").split(b","):
                encoding, _, weight = each.partition(b";q=")
                weights[encoding] = _weight(weight) if weight else 1.0
    liked = {each: weights.get(each.name, weights.get(b"*", 0.0)) for each in _ENCODINGS}
    best = max(liked, key=liked.__getitem__)
    return best if liked[best] > 0 else None


def _weight(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def _is_compressible(head: Message) -> bool:
    names = dict(head["headers"])
    kind = names.get(b"content-type", b"")
    return (
        head["status"] not in (204, 206, 304)
        and b"content-encoding" not in names
        and kind.startswith(_KINDS)
        and not kind.startswith(b"text/event-stream")
    )


def _encoded(headers: _Headers, encoding: bytes, length: int | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of the compressed body. Its entity tag is weak: the same one names the plain body."""
    kept = [
        (name, b"W/" + value if name == b"etag" and not value.startswith(b"W/") else value)
        for name, value in headers
        if name not in (b"content-length", b"accept-ranges")
    ]
    kept.append((b"content-encoding", encoding))
    return kept if length is None else [*kept, (b"content-length", b"%d" % length)]
