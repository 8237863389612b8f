"""The service's paths.

Look-ups run on the event loop: a store answers them in microseconds, less than handing them to a thread would cost.
Looking for devices may take long and runs in a thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response

from tilewise.api import schemas
from tilewise.api.answers import answer
from tilewise.api.questions import question_from_body, question_from_query
from tilewise.db.records import Question
from tilewise.db.store import Store
from tilewise.errors import UnknownKernel, UsageError
from tilewise.kernels import registry
from tilewise.tuner.devices.base import DeviceRow
from tilewise.tuner.lookup import NotTuned, miss
from tilewise.tuner.problem import LARGEST

__all__ = ["ROUTES"]


class PlainRoute(APIRoute):
    """Documented by FastAPI, run as Starlette runs it: the endpoint takes the request and returns the response.

    FastAPI's own handler solves parameters and validates on every request, which costs half of the throughput.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return cast(Callable[[Request], Coroutine[Any, Any, Response]], self.endpoint)


_DATABASE_FAILS: dict[int | str, dict[str, Any]] = {
    503: {"model": schemas.Problem, "description": "The database does not answer."}
}

_QUERY_PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "kernel",
        "in": "path",
        "required": True,
        "description": "name of a kernel: one of /v1/kernels, or of a user's file",
        "schema": {"type": "string", "minLength": 1},
        "example": "row_reduce",
    },
    {
        "name": "dims",
        "in": "query",
        "required": True,
        "description": "the size of each of the kernel's dimensions, one query parameter each: `M=1000&N=8192`",
        "style": "form",
        "explode": True,
        "schema": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"not": {"enum": ["dtype", "device", "match"]}},
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": LARGEST},
        },
        "example": {"M": 1000, "N": 8192},
    },
    {
        "name": "dtype",
        "in": "query",
        "schema": {"type": "string", "default": "float32"},
    },
    {
        "name": "device",
        "in": "query",
        "required": True,
        "description": "the device's name, whether its times were measured or modelled",
        "schema": {"type": "string", "minLength": 1},
        "example": "Ascend910B4",
    },
    {
        "name": "match",
        "in": "query",
        "description": "how far the answer may lie from the question",
        "schema": {"type": "string", "enum": ["exact"], "default": "exact"},
    },
]

plain = APIRouter(route_class=PlainRoute)
typed = APIRouter()


def _store(request: Request) -> Store:
    return cast(Store, request.app.state.store)


@plain.get(
    "/v1/configs/{kernel}",
    summary="The best known config of a problem",
    response_model=schemas.Result,
    responses={
        400: {"model": schemas.Problem, "description": "A parameter is missing, unknown, repeated or out of range."},
        404: {
            "model": schemas.NotTunedProblem,
            "description": "Unknown kernel, or nothing stored for this problem.",
        },
        **_DATABASE_FAILS,
    },
    openapi_extra={"parameters": _QUERY_PARAMETERS},
)
async def read_config(request: Request) -> Response:
    """Each of the kernel's dimensions is a query parameter, once, in plain digits."""
    question = question_from_query(request.path_params["kernel"], request.query_params.multi_items())
    return JSONResponse(answer(_store(request), question).to_json())


@typed.post(
    "/v1/lookup",
    summary="Many look-ups at once",
    response_model=schemas.LookupResults,
    responses={
        400: {
            "model": schemas.Problem,
            "description": "A query asks for a dimension or dtype that its kernel lacks.",
        },
        413: {"model": schemas.Problem, "description": "The body is too large."},
        422: {"model": schemas.ValidationProblem, "description": "The body is no JSON or not of the documented form."},
        **_DATABASE_FAILS,
    },
)
async def look_up(request: Request, body: schemas.LookupRequest) -> Response:
    """Answers come in the order of the queries; what nothing stored answers has a null `config`."""
    store = _store(request)
    questions = [_numbered(index, query) for index, query in enumerate(body.queries)]
    return JSONResponse({"results": [_answer_or_miss(store, question) for question in questions]})


@plain.get("/v1/kernels", summary="What can be tuned", response_model=schemas.Kernels)
async def list_kernels(request: Request) -> Response:
    """The kernels that come with tilewise; those of users' files are not listed, but can be looked up."""
    return JSONResponse({"kernels": [_kernel(name) for name in registry.names()]})


@typed.get("/v1/devices", summary="What can be tuned on", response_model=schemas.Devices)
def list_devices(request: Request) -> Response:
    """Devices as seen from the server's own machine."""
    from tilewise.tuner.devices.catalogue import rows

    return JSONResponse({"devices": [_device(row) for row in rows()]})


@plain.get("/healthz", summary="Whether the server runs", response_model=schemas.Health)
async def healthz(request: Request) -> Response:
    """Does not touch the database."""
    return JSONResponse({"status": "ok"})


@plain.get("/readyz", summary="Whether the database answers", response_model=schemas.Health, responses=_DATABASE_FAILS)
async def readyz(request: Request) -> Response:
    """Asks the database one indexed question."""
    _store(request).lookup(Question("", {}, "", ""))
    return JSONResponse({"status": "ok"})


def _numbered(index: int, query: schemas.LookupQuery) -> Question:
    try:
        return question_from_body(query)
    except UsageError as error:
        raise type(error)(f"queries[{index}]: {error}") from error


def _answer_or_miss(store: Store, question: Question) -> dict[str, Any]:
    """What `/v1/configs` answers with 404 is a miss here."""
    try:
        return answer(store, question).to_json()
    except (NotTuned, UnknownKernel) as error:
        return miss(question, str(error))


def _kernel(name: str) -> dict[str, Any]:
    spec = registry.load(name)
    return {
        "name": spec.name,
        "summary": spec.summary,
        "dims": spec.dims,
        "dtypes": spec.dtypes,
        "parameters": [parameter.name for parameter in spec.parameters],
    }


def _device(row: DeviceRow) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(row).items() if value not in (None, "")}


ROUTES = [*plain.routes, *typed.routes]
"""The look-up of one config first: routes are tried in order."""
