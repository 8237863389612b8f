"""The outermost layer of every request: its id, security headers, metrics, the access log, and problems for defects.

Exact look-ups are answered here, from memory or with one read of the database, and never reach the router, which would
take as long as the read. This is plain ASGI because Starlette's `BaseHTTPMiddleware` would cost more than all of it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewise.api.http import problems
from tilewise.api.http.lookup_request import request_from_query

if TYPE_CHECKING:
    from tilewise.api.service.answer_cache import Answer
    from tilewise.api.service.service import Service

__all__ = ["CACHE_CONTROL", "Middleware"]

CACHE_CONTROL = b"no-cache"
"""Caches may keep an answer, but must revalidate it by its entity tag."""

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

_CLIENT_LEFT = 499
"""Status in logs and metrics of a request whose client did not wait for the answer."""

_log = logging.getLogger("tilewise.access")


class Middleware:
    """`unexpected` answers a defect of the server."""

    def __init__(
        self, app: ASGIApp, service: Service, unexpected: Callable[[Request], Response] = problems.of_unexpected
    ) -> None:
        self._app, self._service, self._unexpected = app, service, unexpected
        self._prefix = os.urandom(4).hex().encode()
        self._serials = itertools.count(1)

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
        request_id = given if given and _ID.fullmatch(given) else b"%s-%x" % (self._prefix, next(self._serials))
        if scope["method"] == "GET" and scope["path"].startswith(_HOT):
            status = await self._answer(scope, send, request_id, tag)
            if status:
                self._finish(scope, request_id, status, _HOT_ROUTE, began)
                return
        await self._pass_on(scope, receive, send, request_id, began)

    async def _answer(self, scope: Scope, send: Send, request_id: bytes, tag: bytes | None) -> int:
        """Answer an exact look-up if reading is open. Returns the status, or 0 if it did not answer."""
        if not self._service.reads_open:
            return 0
        try:
            answer = await self._find(scope)
        except Exception:  # the router runs into it as well, and reports it in full
            return 0
        if answer is None:
            return 0
        status, body = (304, b"") if tag is not None and answer.fits(tag) else (200, answer.body)
        headers = [(b"etag", answer.tag), _CACHED, (b"x-request-id", request_id), *_SAFE, _POLICY]
        if status == 200:
            headers += [_JSON, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return status

    async def _find(self, scope: Scope) -> Answer | None:
        target, kernel = scope["raw_path"] + b"?" + scope["query_string"], scope["path"].removeprefix(_HOT)
        if (answer := self._service.answer_cache.find(target)) is not None:
            self._service.recalled.inc()
            return answer
        if "/" in kernel:
            return None
        query = request_from_query(kernel, scope["query_string"].decode("latin-1"))
        return None if query.toolchain is not None else await self._service.exact_answer(target, query.question)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, request_id: bytes, began: float) -> None:
        status = 0

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"] = [*message["headers"], (b"x-request-id", request_id), *_SAFE]
                if all(name != b"cache-control" for name, _ in headers):
                    headers.append(_CACHED)  # without it, a proxy may cache a 404
                headers.append(_PAGE_POLICY if _is_page(headers) else _POLICY)
            await send(message)

        scope.setdefault("state", {})["request_id"] = request_id.decode()
        try:
            await self._app(scope, receive, tagged)
        except ClientDisconnect:
            status = _CLIENT_LEFT
        except Exception:
            _log.exception("unexpected error", extra={"request_id": request_id.decode(), "path": scope["path"]})
            if not status:
                await self._unexpected(Request(scope))(scope, receive, tagged)
            status = 500
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._finish(scope, request_id, status or HTTPStatus.INTERNAL_SERVER_ERROR, route, began)

    def _finish(self, scope: Scope, request_id: bytes, status: int, route: str, began: float) -> None:
        seconds = time.perf_counter() - began
        self._service.metrics.count(_method(scope), route, status, seconds)
        level = _level(scope["method"], status)
        if _log.isEnabledFor(level):
            fields = _fields(scope, request_id, seconds)
            _log.log(level, "%s %s %d", scope["method"], scope["path"], status, extra=fields)


def _without_body(send: Send) -> tuple[Receive, Send]:
    """Return `receive` and `send` that answer HEAD: they cut GET's answer off where its body begins."""
    answered = asyncio.Event()

    async def leave() -> Message:
        await answered.wait()
        return {"type": "http.disconnect"}

    async def head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})
            answered.set()

    return leave, head


def _is_page(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers)


def _method(scope: Scope) -> str:
    """Return a metric label for the method; clients may send any text, so all but the standard ones are `other`."""
    method: str = scope["method"]
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"


def _level(method: str, status: int) -> int:
    """Return the log level of an answer; successful reads are logged at debug level only."""
    if status >= 500:
        return logging.ERROR
    return logging.DEBUG if method in ("GET", "HEAD") and status < 400 else logging.INFO


def _fields(scope: Scope, request_id: bytes, seconds: float) -> dict[str, Any]:
    """Return the extra fields of an access log line; headers and bodies are left out because they may hold tokens."""
    client = scope.get("client")
    return {
        "request_id": request_id.decode(),
        "query": scope["query_string"].decode("latin-1")[:500],
        "ms": round(seconds * 1e3, 3),
        "client": client[0] if client else None,
    }
