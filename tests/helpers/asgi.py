"""Requests passed straight to an application, by the hundred thousand, without socket, client or thread."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from starlette.types import ASGIApp


class Answer(NamedTuple):
    status: int
    body: bytes


async def ask(
    app: ASGIApp, method: str, path: str, *, headers: dict[str, bytes] | None = None, body: bytes = b""
) -> Answer:
    """Send a request; `path` includes the query, after a question mark."""
    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": raw,
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value) for name, value in (headers or {}).items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    status, sent = 0, bytearray()

    parts = iter([body])

    async def receive() -> dict[str, Any]:
        part = next(parts, None)
        if part is None:
            await asyncio.Event().wait()  # the client stays
        return {"type": "http.request", "body": part, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        sent.extend(message.get("body", b""))

    await app(scope, receive, send)
    return Answer(status, bytes(sent))
