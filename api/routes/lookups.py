"""Look-ups: one by its address, or many at once.

An exact one runs on the event loop: a file answers it in microseconds, less than handing it to a thread would cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from tilewise.api.http import schemas
from tilewise.api.http.lookup_request import LookupRequest, request_from_body, request_from_query
from tilewise.api.http.routing import (
    DATABASE_FAILS,
    MISUSED,
    UNCHANGED,
    PlainRoute,
    documented,
    encode,
    respond,
    service_of,
)
from tilewise.api.service.answer_cache import Answer
from tilewise.api.service.answers import answer, exact, registered
from tilewise.db.records import Question
from tilewise.errors import UnknownKernel, UsageError
from tilewise.tuner.lookup.resolve import Match, NotTuned, miss
from tilewise.tuner.space.problem import LARGEST

if TYPE_CHECKING:
    from tilewise.api.service.service import Service
    from tilewise.tuner.lookup.store_source import StoreSource

__all__ = ["QUESTION", "plain", "typed"]

QUESTION: list[dict[str, Any]] = [
    documented(
        "kernel",
        "name of a kernel: one of /v1/kernels, or of a user's file",
        where="path",
        required=True,
        minLength=1,
        example="row_reduce",
    ),
    {
        "name": "dims",
        "in": "query",
        "required": True,
        "description": "the size of each of the kernel's dimensions: one query parameter each, once, in plain digits",
        "style": "form",
        "explode": True,
        "schema": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"not": {"enum": ["dtype", "device", "match", "toolchain"]}},
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": LARGEST},
        },
        "example": {"M": 1000, "N": 8192},
    },
    documented("dtype", "type of the kernel's inputs", default="float32"),
    documented(
        "device",
        "the device's name, whether its times were measured or modelled",
        required=True,
        minLength=1,
        example="Ascend910B4",
    ),
]
"""A kernel and a problem of it, as an address has them."""

plain = APIRouter(route_class=PlainRoute, tags=["look-ups"])
typed = APIRouter(tags=["look-ups"])


@plain.get(
    "/v1/configs/{kernel}",
    summary="The best known config of a problem",
    response_model=schemas.Result,
    responses={
        **UNCHANGED,
        **MISUSED,
        404: {
            "model": schemas.NotTunedProblem,
            "description": "Unknown kernel, or nothing stored for this problem.",
        },
        **DATABASE_FAILS,
    },
    openapi_extra={
        "parameters": [
            *QUESTION,
            documented(
                "match", "how far the answer may relax; each allows those before it", form="Match", default="exact"
            ),
            documented("toolchain", "what exactly the time must have been found with", minLength=1),
        ]
    },
)
async def lookup(request: Request) -> Response:
    """An answer says in `match` how it is known, and in `why` what from."""
    service = service_of(request)
    asked = request_from_query(request.path_params["kernel"], request.query_params.multi_items())
    service.answer_cache.follow()
    read_at = service.answer_cache.generation
    result = await service.read(exact, service.store, asked.question) if asked.toolchain is None else None
    if result is None:
        try:
            result = await service.run(answer, service.source, asked.question, asked.match, asked.toolchain)
        except NotTuned:
            _heed_miss(service, asked.question)
            raise
    encoded = Answer.of(encode(result.to_json()))
    if result.match == Match.EXACT:
        target = request.scope["raw_path"] + b"?" + request.scope["query_string"]
        service.answer_cache.keep(target, asked.question.key, encoded, read_at=read_at)
    service.metrics.answers.labels(result.match, "database").inc()
    return respond(request, encoded)


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
        **DATABASE_FAILS,
    },
)
async def lookup_many(request: Request, body: schemas.LookupRequest) -> Response:
    """Answers come in the order of the queries; what nothing stored answers has a null `config`."""
    service = service_of(request)
    asked = [_numbered(index, query) for index, query in enumerate(body.queries)]
    results = await service.run(_answers, service.source, asked)
    for each, result in zip(asked, results, strict=True):
        if result["config"] is None:
            _heed_miss(service, each.question)
    return JSONResponse({"results": results})


def _heed_miss(service: Service, question: Question) -> None:
    if service.options.tune_misses and (known := registered(question.kernel)):
        service.heed_miss(question, known[1])


def _numbered(index: int, query: schemas.LookupQuery) -> LookupRequest:
    try:
        return request_from_body(query)
    except UsageError as error:
        raise type(error)(f"queries[{index}]: {error}") from error


def _answers(source: StoreSource, asked: list[LookupRequest]) -> list[dict[str, Any]]:
    return [_answer_or_miss(source, each) for each in asked]


def _answer_or_miss(source: StoreSource, asked: LookupRequest) -> dict[str, Any]:
    """What `/v1/configs` answers with 404 is a miss here."""
    try:
        return answer(source, asked.question, asked.match, asked.toolchain).to_json()
    except (NotTuned, UnknownKernel) as error:
        return miss(asked.question, asked.match, str(error))
