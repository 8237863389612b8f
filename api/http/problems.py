"""Errors as RFC 9457 problem documents."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match as RouteMatch

from tilewise.api.http.problem_types import entry_of, faults_of, type_of
from tilewise.errors import Busy, LeaseLost, NoSpace, ReadOnly, StoreError, TilewiseError
from tilewise.tuner.lookup.resolve import NotTuned

__all__ = ["MEDIA_TYPE", "ProblemResponse", "install", "of_ours", "of_unexpected"]

MEDIA_TYPE = "application/problem+json"

_NO_ANSWER = "the database does not answer; the server's log says why"
_DETAILS = {
    NoSpace: "the server's disk is full; nothing was written: its operator has to free some space",
    ReadOnly: "the server's database is read-only; nothing was written: its operator has to make it writable",
}

RETRY_SECONDS = "5"
"""Delay before a retry when the database did not answer."""

_LONGEST = 1000
"""Longest detail, in characters."""

_log = logging.getLogger(__name__)


class ProblemResponse(JSONResponse):
    media_type = MEDIA_TYPE


def install(app: FastAPI) -> None:
    """Make the application answer every error with a problem document."""
    app.add_exception_handler(TilewiseError, of_ours)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _of_validation)


async def of_ours(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, TilewiseError)
    status, kind = entry_of(error)
    members: dict[str, Any] = {}
    detail = str(error)
    if isinstance(error, NotTuned):
        members["nearest"] = [dict(dims) for dims in error.nearest]
    elif isinstance(error, StoreError) and not isinstance(error, LeaseLost):
        _log.error("the database failed: %s", error)
        request.app.state.service.metrics.database_errors.inc()
        detail = _DETAILS.get(type(error), _NO_ANSWER)  # the message may hold paths of the server
    title = kind.replace("-", " ").capitalize()
    headers = {401: {"WWW-Authenticate": _challenge(request)}, 503: {"Retry-After": RETRY_SECONDS}}.get(status)
    if isinstance(error, ReadOnly):
        headers = None
    if isinstance(error, Busy):
        headers = {"Retry-After": str(math.ceil(error.retry_seconds))}
    return _problem(request, status, detail, kind=type_of(error), title=title, members=members, headers=headers)


def _challenge(request: Request) -> str:
    """Return a challenge that makes browsers ask for a password on a page, but not on the API, which takes tokens."""
    return "Bearer" if request.url.path.startswith("/v1/") else 'Basic realm="tilewise: a token as password"'


async def _of_http(request: Request, error: Exception) -> ProblemResponse:
    """Answer the errors of Starlette and FastAPI: unknown paths, wrong methods, unreadable bodies."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    details = {
        404: f"there is nothing at {request.url.path!r}; /openapi.json lists all paths",
        405: f"{request.method} is not allowed here; allowed: {headers.get('Allow', 'nothing')}",
    }
    return _problem(request, error.status_code, details.get(error.status_code, error.detail), headers=headers)


def _methods(request: Request) -> set[str]:
    """Return the methods that any route of the request's path has."""
    scope = {**request.scope, "root_path": request.scope.get("app_root_path", "")}  # as above a mounted folder
    fitting = (route for route in request.app.routes if route.matches(scope)[0] is not RouteMatch.NONE)
    methods = {method for route in fitting for method in getattr(route, "methods", None) or ("GET",)}
    return methods | {"HEAD"} if "GET" in methods else methods


async def _of_validation(request: Request, error: Exception) -> ProblemResponse:
    """Answer a body that is not valid JSON or does not match its schema; each fault comes with a JSON pointer."""
    assert isinstance(error, RequestValidationError)
    faults = faults_of(error.errors())
    first = f"{faults[0]['pointer']}: {faults[0]['detail']}"
    detail = first if len(faults) == 1 else f"{first} (and {len(faults) - 1} more)"
    return _problem(request, 422, f"the request does not match its schema: {detail}", members={"errors": faults})


def of_unexpected(request: Request) -> ProblemResponse:
    """Answer a defect of the server, without its details."""
    return _problem(request, 500, "the server failed unexpectedly; its log says why")


def _problem(
    request: Request,
    status: int,
    detail: str,
    *,
    kind: str = "about:blank",
    title: str | None = None,
    members: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> ProblemResponse:
    body = {
        "type": kind,
        "title": title or HTTPStatus(status).phrase,
        "status": status,
        "detail": _one_line(detail),
        "instance": _instance(request),
    }
    return ProblemResponse(body | dict(members or {}), status_code=status, headers=headers)


def _one_line(text: str) -> str:
    """Shorten a detail and replace unprintable characters: it may quote anything that was sent."""
    line = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text[:_LONGEST]
    )
    return line if len(text) <= _LONGEST else f"{line}..."


def _instance(request: Request) -> str:
    """Return the request's path and query as sent, so that the problem alone identifies its request."""
    path, query = request.scope["raw_path"], request.scope["query_string"]
    return quote(path + b"?" + query if query else path, safe="/?%&=+:@!$'()*,;~")
