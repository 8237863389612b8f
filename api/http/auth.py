"""Authorization: every request but a few needs a right, which everybody has or a bearer token grants.

Paths that are not named here are closed by default: reading needs `read`, anything else `submit`. A worker's requests,
some a second for each job, do not count as writes.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewise.api.http import problems
from tilewise.db.tokens import Right
from tilewise.errors import Forbidden, TilewiseError, Unauthorized

if TYPE_CHECKING:
    from tilewise.api.service.service import Service

__all__ = ["Authorization", "caller_of", "required_right", "token_of"]

_OPEN = ("/healthz", "/readyz", "/openapi.json")
_READING = ("GET", "HEAD", "OPTIONS")


def required_right(method: str, path: str) -> Right | None:
    """Return the right that a request needs; None if it is open to everybody on every server."""
    if path.startswith("/v1/work/"):
        return Right.WORK
    if method in _READING and (path in _OPEN or path.startswith("/static/")):
        return None
    if method in _READING or path == "/v1/lookup":
        return Right.READ
    return Right.ADMIN if path == "/v1/import" else Right.SUBMIT


def caller_of(request: Request) -> str:
    """Return the address that a request comes from, by which limits tell callers apart."""
    return request.client.host if request.client else "unknown"


class Authorization:
    """Middleware that answers 401, 403 or 429 before any of the request's body is read."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._writes, self._failures = service.limits.writes, service.limits.failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told: list[tuple[bytes, bytes]] = []
        try:
            await self._admit(scope, told)
        except TilewiseError as error:
            await (await problems.of_ours(Request(scope), error))(scope, receive, _with(told, send))
            return
        await self._app(scope, receive, _with(told, send) if told else send)

    async def _admit(self, scope: Scope, told: list[tuple[bytes, bytes]]) -> None:
        """Raise an error unless the request may go on; `told` gets headers for the answer."""
        right = required_right(scope["method"], scope["path"])
        if right is None or (right is Right.READ and self._service.reads_open):
            return
        caller = (scope.get("client") or ("unknown",))[0]
        text = token_of(scope)
        found = await self._service.read(self._service.tokens.check, text) if text else None
        if found is None:
            self._failures.take(caller)
            problem = "this token is unknown or revoked" if text else "a token is needed"
            raise Unauthorized(f"{problem}; send `Authorization: Bearer TOKEN` with one from tilewise token create")
        token_id, held = found
        if not held.includes(right):
            raise Forbidden(f"this token has the right {held}; the request needs {right}")
        if right not in (Right.READ, Right.WORK):
            try:
                self._writes.take(token_id)
            finally:
                told += self._writes.headers(token_id)


def _with(headers: list[tuple[bytes, bytes]], send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return add


def token_of(scope: Scope) -> str:
    """Return a request's bearer token, or the password of a reading request; empty if it has neither.

    Browsers send a password on their own, so a password must not be enough to write.
    """
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, text = str(value, "latin-1").partition(" ")
            if kind.lower() == "bearer":
                return text.strip()
            if kind.lower() == "basic" and scope["method"] in _READING:
                return _password(text.strip())
    return ""


def _password(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("latin-1").partition(":")[2]
    except ValueError:
        return ""
