"""Shared parts of the routes: the route class, access to the request, documentation of parameters and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from tilewise.api.http import schemas
from tilewise.api.http.middleware import CACHE_CONTROL
from tilewise.api.http.parameters import Parameters
from tilewise.api.service.answer_cache import Answer, encode
from tilewise.db.store import Wanted
from tilewise.errors import UsageError
from tilewise.tuner.space.problem_checks import parse_dims

if TYPE_CHECKING:
    from tilewise.api.service.service import Service

__all__ = [
    "DATABASE_FAILS",
    "MISUSED",
    "NARROWING",
    "UNCHANGED",
    "PlainRoute",
    "body_of",
    "documented",
    "given",
    "next_of",
    "paged",
    "respond",
    "service_of",
    "tagged",
    "unchanged",
    "wanted_of",
    "while_connected",
]

T = TypeVar("T")

_LONGEST_DIMS = 300


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


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`; if the client leaves before, cancel it and raise `ClientDisconnect`.

    The request's body has to be read first.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def body_of(schema: str) -> dict[str, Any]:
    """Return an operation's request body in OpenAPI's form."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"required": True, "content": content}


NARROWING = [
    documented("kernel", "only this kernel", minLength=1),
    documented("dtype", "only this dtype", minLength=1),
    documented("device", "only this device name", minLength=1),
    documented("dims", "only shapes with these sizes and flags", minLength=1, example="M=1000,N=8192"),
]
"""The parameters that `wanted_of` takes."""


def wanted_of(parameters: Parameters) -> Wanted:
    """Take the filter of a listing. Raises `UsageError`."""
    dims = parameters.take("dims")
    if dims and len(dims) > _LONGEST_DIMS:
        raise UsageError(f"dims has {len(dims)} characters; expected at most {_LONGEST_DIMS}, such as M=1000,N=8192")
    return Wanted(
        kernel=parameters.take("kernel"),
        dtype=parameters.take("dtype"),
        device=parameters.take("device"),
        dims=parse_dims(dims) if dims else {},
    )


def next_of(operation: str, parameter: str = "after") -> dict[str, Any]:
    """Return OpenAPI's link from a page of an operation to the next one."""
    return {
        "operationId": operation,
        "parameters": {parameter: "$response.body#/next"},
        "description": "The next page, with the other parameters unchanged.",
    }


def paged(
    request: Request, document: Mapping[str, Any], name: str, place: str | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a page of a listing and its headers, with where the next page is: its parameter `name` is `place`, or None
    where this page is the last."""
    if place is None:
        return dict(document), {}
    others = [(key, text) for key, text in request.query_params.multi_items() if key != name]
    path = quote(request.scope["path"])
    return {**document, "next": place}, {"link": f'<{path}?{urlencode([*others, (name, place)])}>; rel="next"'}


def tagged(request: Request, document: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Answer a document as JSON with its entity tag and further headers, or 304 if the client already has it."""
    response = respond(request, Answer.of(encode(document)))
    response.headers.update(headers or {})
    return response


def respond(request: Request, answer: Answer) -> Response:
    return unchanged(request, answer) or Response(answer.body, media_type="application/json", headers=_headers(answer))


def unchanged(request: Request, answer: Answer) -> Response | None:
    """Return a 304 if the client already has the answer, else None."""
    fits = answer.fits(request.headers.get("if-none-match", "").encode("latin-1"))
    return Response(status_code=304, headers=_headers(answer)) if fits else None


def _headers(answer: Answer) -> dict[str, str]:
    return {"etag": answer.tag.decode(), "cache-control": CACHE_CONTROL.decode()}
