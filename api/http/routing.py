"""Shared parts of the routes: the route class, access to the request, documentation of parameters and errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from tilewise.api.http import schemas
from tilewise.api.http.middleware import CACHE_CONTROL
from tilewise.api.http.parameters import Parameters
from tilewise.api.service.answer_cache import Answer

if TYPE_CHECKING:
    from tilewise.api.service.service import Service

__all__ = [
    "DATABASE_FAILS",
    "MISUSED",
    "NARROWING",
    "UNCHANGED",
    "PlainRoute",
    "documented",
    "encode",
    "given",
    "respond",
    "service_of",
    "tagged",
    "unchanged",
]


class PlainRoute(APIRoute):
    """A route documented by FastAPI but run as by Starlette: the endpoint takes the request and returns the response.

    FastAPI's own handler resolves and validates parameters on every request, which costs half of the throughput.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return cast(Callable[[Request], Coroutine[Any, Any, Response]], self.endpoint)


DATABASE_FAILS: dict[int | str, dict[str, Any]] = {
    503: {
        "model": schemas.Problem,
        "description": "The database does not answer; `Retry-After` says when to retry.",
    }
}
MISUSED: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Problem, "description": "A parameter is missing, unknown, repeated or out of range."}
}


UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "The client already has this answer."}}


def service_of(request: Request) -> Service:
    return cast("Service", request.app.state.service)


def given(request: Request) -> Parameters:
    return Parameters(request.query_params.multi_items())


def documented(
    name: str, description: str, *, where: str = "query", required: bool = False, form: str = "", **schema: Any
) -> dict[str, Any]:
    """Return an operation's parameter in OpenAPI's form. `form` names a schema; `example` goes beside the schema."""
    example = schema.pop("example", None)
    entry: dict[str, Any] = {"name": name, "in": where, "description": description, "required": required}
    of = {"$ref": f"#/components/schemas/{form}"} if form else {"type": "string"}
    entry["schema"] = {**of, **schema}
    return entry if example is None else entry | {"example": example}


NARROWING = [
    documented("kernel", "only this kernel", minLength=1),
    documented("dtype", "only this dtype", minLength=1),
    documented("device", "only this device name", minLength=1),
]


def tagged(request: Request, document: Any) -> Response:
    """Answer a document as JSON with its entity tag, or 304 if the client already has it."""
    return respond(request, Answer.of(encode(document)))


def encode(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def respond(request: Request, answer: Answer) -> Response:
    return unchanged(request, answer) or Response(answer.body, media_type="application/json", headers=_headers(answer))


def unchanged(request: Request, answer: Answer) -> Response | None:
    """Return a 304 if the client already has the answer, else None."""
    fits = answer.fits(request.headers.get("if-none-match", "").encode("latin-1"))
    return Response(status_code=304, headers=_headers(answer)) if fits else None


def _headers(answer: Answer) -> dict[str, str]:
    return {"etag": answer.tag.decode(), "cache-control": CACHE_CONTROL.decode()}
