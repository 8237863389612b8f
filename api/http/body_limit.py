"""Limits on the size of request bodies."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LARGEST_BODY", "LARGEST_IMPORT", "BodyLimit"]

LARGEST_BODY = 1 << 20
"""Bytes: a batch of `MOST_QUERIES` queries takes some 150,000."""

LARGEST_IMPORT = 64 << 20


class BodyLimit:
    """Refuse bodies over their limit, announced or streamed, before they fill the memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            receive = _limited(receive, LARGEST_IMPORT if scope["path"] == "/v1/import" else LARGEST_BODY)
        await self._app(scope, receive, send)


def _limited(receive: Receive, most: int) -> Receive:
    """`receive`, raising HTTP's 413 as soon as more than `most` bytes have come."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > most:
            raise HTTPException(413, f"the body is larger than {most} bytes; send less at once")
        return message

    return counted
