"""Liveness, readiness and metrics of the service."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from tilewise.api.http import schemas
from tilewise.api.http.routing import DATABASE_FAILS, PlainRoute, service_of
from tilewise.api.service.metrics import CONTENT_TYPE

__all__ = ["plain"]

plain = APIRouter(route_class=PlainRoute, tags=["health"])


@plain.get("/healthz", summary="Check that the server runs", response_model=schemas.Health)
async def healthz(request: Request) -> Response:
    """Answer without touching the database."""
    return JSONResponse({"status": "ok"})


@plain.get(
    "/readyz", summary="Check that the server can answer", response_model=schemas.Health, responses=DATABASE_FAILS
)
async def readyz(request: Request) -> Response:
    """Check that the database has the schema version that this program needs, and run one indexed query. Checks at the
    same time are one."""
    await service_of(request).check_ready()
    return JSONResponse({"status": "ok"})


@plain.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format: those of all processes of the server, by the label `process`."""
    return Response(await service_of(request).metrics_text(), media_type=CONTENT_TYPE)
