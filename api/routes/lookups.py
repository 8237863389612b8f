"""Look-ups: one by its URL, or many at once.

Where reading is open, the middleware has answered exact look-ups before they come here. They run on the event loop: a
database file answers them in microseconds, less than a switch to a thread would cost.
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
from tilewise.api.service.answers import answer, registered
from tilewise.db.records import Question
from tilewise.errors import UnknownKernel, UsageError
from tilewise.tuner.lookup.resolve import Match, NotTuned, miss

if TYPE_CHECKING:
    from tilewise.api.service.service import Service
    from tilewise.tuner.lookup.store_source import StoreSource

__all__ = ["QUESTION", "plain", "typed"]

QUESTION: list[dict[str, Any]] = [
    documented(
        "kernel",
        "name of a kernel: one that /v1/kernels lists, or one from a user's file",
        where="path",
        required=True,
        minLength=1,
        example="row_reduce",
    ),
    {
        "name": "dims",
        "in": "query",
        "required": True,
        "description": "size of each dimension of the kernel, in plain digits, and its flags: a query parameter each",
        "style": "form",
        "explode": True,
        "schema": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"not": {"enum": ["dtype", "device", "match", "toolchain"]}},
            "additionalProperties": schemas.SIZE_OR_FLAG,
        },
        "example": {"M": 1000, "N": 8192},
    },
    documented("dtype", "type of the kernel's inputs", default="float32"),
    documented(
        "device",
        "name of the device; its times may be measured or modelled",
        required=True,
        minLength=1,
        example="Ascend910B4",
    ),
]
"""The parameters of a problem in a URL."""

plain = APIRouter(route_class=PlainRoute, tags=["look-ups"])
typed = APIRouter(tags=["look-ups"])


@plain.get(
    "/v1/configs/{kernel}",
    summary="Look up the best known config of a problem",
    response_model=schemas.Result,
    responses={
        **UNCHANGED,
        **MISUSED,
        404: {
            "model": schemas.NotTunedProblem,
            "description": "The kernel is unknown, or nothing is stored for this problem.",
        },
        **DATABASE_FAILS,
    },
    openapi_extra={
        "parameters": [
            *QUESTION,
            documented(
                "match",
                "how far the answer may relax; each value allows those before it",
                form="Match",
                default="exact",
            ),
            documented("toolchain", "toolchain of an exact answer; others count as older", minLength=1),
        ]
    },
)
async def lookup(request: Request) -> Response:
    """Return one result. Its `match` names the source of the answer, and its `why` gives the evidence."""
    service = service_of(request)
    query = request_from_query(request.path_params["kernel"], request.scope["query_string"].decode("latin-1"))
    target = request.scope["raw_path"] + b"?" + request.scope["query_string"]
    if query.toolchain is None and (found := await service.exact_answer(target, query.question)):
        return respond(request, found)
    service.answer_cache.follow()
    read_at = service.answer_cache.generation
    try:
        result = await service.run(answer, service.source, query.question, query.match, query.toolchain)
    except NotTuned:
        _heed_miss(service, query.question)
        raise
    encoded = Answer.of(encode(result.to_json()))
    if result.match == Match.EXACT:
        service.answer_cache.keep(target, query.question.key, encoded, read_at=read_at)
    service.metrics.answers.labels(result.match, "database").inc()
    return respond(request, encoded)


@typed.post(
    "/v1/lookup",
    summary="Look up many problems at once",
    response_model=schemas.LookupResults,
    responses={
        400: {
            "model": schemas.Problem,
            "description": "The dimensions or dtype of a query do not fit its kernel.",
        },
        413: {"model": schemas.Problem, "description": "The body is too large."},
        422: {
            "model": schemas.ValidationProblem,
            "description": "The body is not valid JSON or does not match its schema.",
        },
        **DATABASE_FAILS,
    },
)
async def lookup_many(request: Request, body: schemas.LookupRequest) -> Response:
    """Return results in the order of the queries; a miss has a null `config`."""
    service = service_of(request)
    queries = [_parse(index, query) for index, query in enumerate(body.queries)]
    results = await service.run(_answers, service.source, queries)
    for query, result in zip(queries, results, strict=True):
        if result["config"] is None:
            _heed_miss(service, query.question)
    return JSONResponse({"results": results})


def _heed_miss(service: Service, question: Question) -> None:
    if service.options.tune_misses and (known := registered(question.kernel)):
        service.heed_miss(question, known[1])


def _parse(index: int, query: schemas.LookupQuery) -> LookupRequest:
    try:
        return request_from_body(query)
    except UsageError as error:
        raise type(error)(f"queries[{index}]: {error}") from error


def _answers(source: StoreSource, queries: list[LookupRequest]) -> list[dict[str, Any]]:
    return [_answer_or_miss(source, query) for query in queries]


def _answer_or_miss(source: StoreSource, query: LookupRequest) -> dict[str, Any]:
    """Answer one query; what `/v1/configs` answers with 404 is a miss here."""
    try:
        return answer(source, query.question, query.match, query.toolchain).to_json()
    except (NotTuned, UnknownKernel) as error:
        return miss(query.question, query.match, str(error))
