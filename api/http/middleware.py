"""The outermost layer, for every request: its id, security headers, metrics, the log, and defects as problems.

Exact look-ups that are in memory are answered right here; they never reach the router. Written as plain ASGI:
Starlette's `BaseHTTPMiddleware` would cost more than all of this.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewise.api.http import problems
from tilewise.errors import TilewiseError

if TYPE_CHECKING:
    from tilewise.api.service.service import Service

__all__ = ["CACHE_CONTROL", "Middleware"]

CACHE_CONTROL = b"no-cache"
"""Answers may be kept, and are to be asked for again by their entity tag."""

_JSON = (b"content-type", b"application/json")
_CACHED = (b"cache-control", CACHE_CONTROL)
_SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_OWN_FILES = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_POLICY = (b"content-security-policy", _OWN_FILES)
_HOT = "/v1/configs/"
_HOT_ROUTE = "/v1/configs/{kernel}"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")

_log = logging.getLogger("tilewise.access")


class Middleware:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._prefix = os.urandom(4).hex().encode()
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope, receive, send = {**scope, "method": "GET"}, *_without_body(send)
        began = time.perf_counter()
        given = tag = None
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given = value
            elif name == b"if-none-match":
                tag = value
        number = given if given and _ID.fullmatch(given) else b"%s-%x" % (self._prefix, next(self._numbers))
        if scope["method"] == "GET" and scope["path"].startswith(_HOT):
            status = await self._recall(scope, send, number, tag)
            if status:
                self._finish(scope, number, status, _HOT_ROUTE, began)
                return
        await self._pass_on(scope, receive, send, number, began)

    async def _recall(self, scope: Scope, send: Send, number: bytes, tag: bytes | None) -> int:
        """Answer from memory where that is possible and allowed: the status, or 0."""
        if not self._service.reads_open:
            return 0
        try:
            answer = self._service.answer_cache.find(scope["raw_path"] + b"?" + scope["query_string"])
        except TilewiseError:  # the router says it in full
            return 0
        if answer is None:
            return 0
        status, body = (304, b"") if tag is not None and answer.fits(tag) else (200, answer.body)
        headers = [(b"etag", answer.tag), _CACHED, (b"x-request-id", number), *_SAFE, _POLICY]
        if status == 200:
            headers += [_JSON, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        self._service.recalled.inc()
        return status

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, number: bytes, began: float) -> None:
        status = 0

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"] = [*message["headers"], (b"x-request-id", number), *_SAFE]
                if all(name != b"cache-control" for name, _ in headers):
                    headers.append(_CACHED)  # else a proxy may keep a 404 of its own accord
                headers.append(_PAGE_POLICY if _is_page(headers) else _POLICY)
            await send(message)

        scope.setdefault("state", {})["request_id"] = number.decode()
        try:
            await self._app(scope, receive, tagged)
        except Exception:
            _log.exception("a defect", extra={"request_id": number.decode(), "path": scope["path"]})
            if not status:
                await problems.of_unexpected(Request(scope))(scope, receive, tagged)
            status = 500
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._finish(scope, number, status or HTTPStatus.INTERNAL_SERVER_ERROR, route, began)

    def _finish(self, scope: Scope, number: bytes, status: int, route: str, began: float) -> None:
        seconds = time.perf_counter() - began
        self._service.metrics.count(_method(scope), route, status, seconds)
        level = _level(scope["method"], status)
        if _log.isEnabledFor(level):
            _log.log(level, "%s %s %d", scope["method"], scope["path"], status, extra=_facts(scope, number, seconds))


def _without_body(send: Send) -> tuple[Receive, Send]:
    """For HEAD: what GET would answer, ended where its body begins, however long that is."""
    told = asyncio.Event()

    async def leave() -> Message:
        await told.wait()
        return {"type": "http.disconnect"}

    async def head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})
            told.set()

    return leave, head


def _is_page(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers)


def _method(scope: Scope) -> str:
    """Methods are text of the client's choosing; a label must not be."""
    method: str = scope["method"]
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"


def _level(method: str, status: int) -> int:
    """Answered reads are told to those who debug only."""
    if status >= 500:
        return logging.ERROR
    return logging.DEBUG if method in ("GET", "HEAD") and status < 400 else logging.INFO


def _facts(scope: Scope, number: bytes, seconds: float) -> dict[str, Any]:
    """What a line of the log says beside its message: no headers and no bodies, which may hold tokens."""
    client = scope.get("client")
    return {
        "request_id": number.decode(),
        "query": scope["query_string"].decode("latin-1")[:500],
        "ms": round(seconds * 1e3, 3),
        "client": client[0] if client else None,
    }
