"""Errors as pages, for those who asked for a page; all others get the problem document itself."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from tilewise.api.http import problems
from tilewise.api.pages.rendering import page

__all__ = ["install", "unexpected"]

_Handler = Callable[[Request, Exception], Awaitable[Response]]

_TITLES = {400: "Not understood", 404: "Not found", 405: "Not possible here", 429: "Too many requests"}
_OUR_FAULT = "The server failed"


def install(app: FastAPI) -> None:
    """Wrap the handlers that `problems.install` has added."""
    for kind, handler in [*app.exception_handlers.items()]:
        app.add_exception_handler(kind, _wrapped(cast(_Handler, handler)))


def unexpected(request: Request) -> Response:
    """Answer a defect of the server."""
    return _as_page(request, problems.of_unexpected(request))


def _wrapped(handler: _Handler) -> _Handler:
    async def answer(request: Request, error: Exception) -> Response:
        return _as_page(request, await handler(request, error))

    return answer


def _as_page(request: Request, problem: Response) -> Response:
    """Return the page of a problem if a browser asked for one, with the problem's own headers."""
    wanted = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/v1/")
    if not wanted or problem.media_type != problems.MEDIA_TYPE:
        return problem
    body, status = json.loads(bytes(problem.body)), problem.status_code
    title = _TITLES.get(status, _OUR_FAULT if status >= 500 else body["title"])
    number = request.scope.get("state", {}).get("request_id", "")
    shown = page("fault.html", here="", title=title, text=body["detail"], request_id=number, status=status)
    for name, value in problem.headers.items():
        if name not in ("content-type", "content-length"):
            shown.headers[name] = value
    return shown
