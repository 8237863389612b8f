"""Whether the service runs, whether it can answer, and its metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from tilewise.api.http import schemas
from tilewise.api.http.routing import DATABASE_FAILS, PlainRoute, service_of
from tilewise.api.service.metrics import CONTENT_TYPE
from tilewise.db.records import Problem, Question

__all__ = ["plain"]

plain = APIRouter(route_class=PlainRoute, tags=["health"])


@plain.get("/healthz", summary="Whether the server runs", response_model=schemas.Health)
async def healthz(request: Request) -> Response:
    """Does not touch the database."""
    return JSONResponse({"status": "ok"})


@plain.get("/readyz", summary="Whether it can answer", response_model=schemas.Health, responses=DATABASE_FAILS)
async def readyz(request: Request) -> Response:
    """Asks the database for the version of its schema, which must be the one that this program needs, and one indexed
    question."""
    service = service_of(request)
    await service.run(service.store.check_schema)
    await service.run(service.store.lookup, Question(Problem("", {}, ""), ""))
    return JSONResponse({"status": "ok"})


@plain.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """In Prometheus' text format."""
    return Response(service_of(request).metrics.text(), media_type=CONTENT_TYPE)
