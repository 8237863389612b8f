"""Liveness, readiness and metrics of the service."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from tilewise.api.http import schemas
from tilewise.api.http.routing import DATABASE_FAILS, PlainRoute, service_of
from tilewise.api.jobs.overview import overview
from tilewise.api.service.metrics import CONTENT_TYPE
from tilewise.api.service.service import Service
from tilewise.db.activity import last_trial
from tilewise.errors import StoreError

__all__ = ["RECOUNT_SECONDS", "plain"]

plain = APIRouter(route_class=PlainRoute, tags=["health"])

RECOUNT_SECONDS = 1.0
"""Anybody may read metrics, and counting asks the database. Chosen by hand: Prometheus asks every 15 s or so."""


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
    """Return the metrics in Prometheus' text format: those of all processes of the server, by the label `process`.

    Those of the fleet are counted at most once in `RECOUNT_SECONDS`, and stay as they are while the database fails.
    """
    service = service_of(request)
    if time.monotonic() - service.metrics.fleet_counted >= RECOUNT_SECONDS:
        service.metrics.fleet_counted = time.monotonic()
        await service.run(_count_fleet, service)
    return Response(await service.metrics_text(), media_type=CONTENT_TYPE)


def _count_fleet(service: Service) -> None:
    try:
        service.metrics.show_fleet(overview(service.jobs, service.fleet), last_trial(service.store.database))
    except StoreError:
        service.metrics.database_errors.inc()
