"""`/v1/explain`: what limits a stored winner and what would help, as far as the model of its part knows."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from tilewise.api.http import schemas
from tilewise.api.http.auth import caller_of
from tilewise.api.http.lookup_request import question_from_parameters
from tilewise.api.http.routing import (
    DATABASE_FAILS,
    MISUSED,
    UNCHANGED,
    PlainRoute,
    given,
    service_of,
    tagged,
    while_connected,
)
from tilewise.api.routes.lookups import QUESTION
from tilewise.api.service.answers import registered
from tilewise.errors import NotFound
from tilewise.tuner.explain.report import unexplained_reason

__all__ = ["plain"]

plain = APIRouter(route_class=PlainRoute, tags=["look-ups"])


@plain.get(
    "/v1/explain/{kernel}",
    summary="Explain the best config of a problem",
    response_model=schemas.Explanation,
    responses={
        **UNCHANGED,
        **MISUSED,
        404: {"model": schemas.Problem, "description": "Nothing is stored for this problem, or it cannot be modelled."},
        429: {"model": schemas.Problem, "description": "Too many explanations are under way."},
        **DATABASE_FAILS,
    },
    openapi_extra={"parameters": QUESTION},
)
async def explain(request: Request) -> Response:
    """Return what the model of the part says of the config that a look-up returns: time by pipe and by source line, the
    price of each compile option, faster neighbours, and the findings of the linter. It is compiled once, which takes
    seconds."""
    service = service_of(request)
    question = question_from_parameters(request.path_params["kernel"], given(request))
    known = registered(question.kernel)
    result = await service.run(service.store.lookup, question, source_hash=known[1] if known else None)
    if result is None or result.winner is None:
        raise NotFound("no verified result is stored for this problem; /v1/configs names the nearest tuned shapes")
    if reason := unexplained_reason(result.scope):
        raise NotFound(f"the result cannot be explained: {reason}")
    report = await while_connected(request, service.explain(caller_of(request), result.scope, result.winner))
    return tagged(request, dict(report.explanation))
