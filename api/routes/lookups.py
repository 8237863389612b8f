"""Look-ups: one by its URL, or many at once.

Where reading is open, the middleware has answered exact look-ups before they come here. They run on the event loop: a
database file answers them in microseconds, less than a switch to a thread would cost. All others run in processes of
their own.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from tilewise.api.http import schemas
from tilewise.api.http.auth import caller_of
from tilewise.api.http.lookup_request import request_from_query
from tilewise.api.http.routing import (
    DATABASE_FAILS,
    MISUSED,
    UNCHANGED,
    PlainRoute,
    body_of,
    documented,
    respond,
    service_of,
    while_connected,
)
from tilewise.api.processes.lookup_batch import Malformed, missed
from tilewise.api.service.answer_cache import Answer
from tilewise.api.service.answers import LookupRequest, registered
from tilewise.api.service.service import Service
from tilewise.db.records import Question
from tilewise.errors import Busy
from tilewise.tuner.lookup.resolve import NotTuned

__all__ = ["QUESTION", "plain"]

_MOST_BEYOND = 16
"""Queries of a batch for portfolios and predictions: each may take a second of a core."""

_TOO_MANY = Busy(f"portfolios and predictions answer at most {_MOST_BEYOND} queries of a batch; ask for this one again")

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
    if query.toolchain is None and (stored := await service.exact_answer(target, query.question)):
        return respond(request, stored)
    try:
        found = await while_connected(request, service.slow_lookups.one(caller_of(request), query))
    except NotTuned:
        _heed_miss(service, query.question)
        raise
    service.metrics.answers.labels(found.match, "database").inc()
    return respond(request, Answer.of(found.body))


@plain.post(
    "/v1/lookup",
    summary="Look up many problems at once",
    response_model=schemas.LookupResults,
    responses={
        413: {"model": schemas.Problem, "description": "The body is too large."},
        422: {
            "model": schemas.ValidationProblem,
            "description": "The body is not valid JSON, or not a list of at most 1000 `queries`.",
        },
        **DATABASE_FAILS,
    },
    openapi_extra={"requestBody": body_of("LookupRequest")},
)
async def lookup_many(request: Request) -> Response:
    """Return results in the order of the queries. One without an answer has a null `config`, and the `type` of the
    problem; one that does not match its schema fails alone, and has `errors`. Of one batch, at most 16 queries are
    answered by portfolios or predictions; further ones are `busy`."""
    service, caller, body = service_of(request), caller_of(request), await request.body()
    items, beyond, unanswered = await while_connected(request, _in_turns(service, caller, body))
    for index, query in list(beyond.items())[:_MOST_BEYOND]:
        try:
            items[index] = (await while_connected(request, service.slow_lookups.one(caller, query))).body
        except (NotTuned, Busy) as error:
            items[index] = missed(query.question.to_json(), query.match, error)
            if isinstance(error, NotTuned):
                unanswered.append(query.question)
    for index, query in list(beyond.items())[_MOST_BEYOND:]:
        items[index] = missed(query.question.to_json(), query.match, _TOO_MANY)
    for question in unanswered:
        _heed_miss(service, question)
    whole = b'{"results":[' + b",".join(item for item in items if item) + b"]}"
    return Response(whole, media_type="application/json")


async def _in_turns(
    service: Service, caller: object, body: bytes
) -> tuple[list[bytes | None], dict[int, LookupRequest], list[Question]]:
    """Return what the quick lane answers of a batch, in which others have their turns in between."""
    items: list[bytes | None] = []
    beyond: dict[int, LookupRequest] = {}
    unanswered: list[Question] = []
    while True:
        part = await service.slow_lookups.part(caller, body, len(items))
        if isinstance(part, Malformed):
            raise RequestValidationError(part.faults)
        beyond |= {len(items) + index: query for index, query in part.beyond.items()}
        unanswered += part.unanswered
        items += part.items
        if len(items) == part.total:
            return items, beyond, unanswered


def _heed_miss(service: Service, question: Question) -> None:
    if service.options.tune_misses and (known := registered(question.kernel)):
        service.heed_miss(question, known[1])
