"""Limits on the size of request bodies."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LARGEST_BODY", "LARGEST_IMPORT", "BodyLimit"]

LARGEST_BODY = 1 << 20
"""In bytes; a batch of `MOST_QUERIES` queries takes about 150,000."""

LARGEST_IMPORT = 512 << 20
"""In bytes; an export of 10^5 problems takes 157 million. It is written to a file while it arrives."""


class BodyLimit:
    """Middleware that refuses bodies over their limit, announced or streamed, before they fill the memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            receive = _limited(receive, LARGEST_IMPORT if scope["path"] == "/v1/import" else LARGEST_BODY)
        await self._app(scope, receive, send)


def _limited(receive: Receive, limit: int) -> Receive:
    """Wrap `receive` to raise HTTP 413 as soon as more than `limit` bytes have arrived."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > limit:
            raise HTTPException(413, f"the body is larger than {limit} bytes; send it in smaller parts")
        return message

    return counted
