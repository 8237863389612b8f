"""The live workers, their devices, and what runs on each."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from tilewise.api.http import schemas
from tilewise.api.http.routing import DATABASE_FAILS, PlainRoute, service_of
from tilewise.api.service.service import Service
from tilewise.db.workers import Worker

__all__ = ["plain"]

plain = APIRouter(route_class=PlainRoute, tags=["jobs"])


@plain.get("/v1/workers", summary="List the live workers", response_model=schemas.Workers, responses=DATABASE_FAILS)
async def workers(request: Request) -> Response:
    """Return the processes that run jobs, this server's among them, each with its devices and their jobs. One that was
    lost disappears after a minute without a sign of life."""
    service = service_of(request)
    return JSONResponse({"workers": await service.run(_listed, service)})


def _listed(service: Service) -> list[dict[str, Any]]:
    running = {(job.host, job.lane): job.id for job in service.jobs.running()}
    return [_worker_json(worker, running) for worker in service.fleet.live()]


def _worker_json(worker: Worker, running: dict[tuple[str, str], int]) -> dict[str, Any]:
    lanes = [
        {
            "id": lane.id,
            "name": lane.name,
            "clock": lane.clock,
            "toolchain": lane.toolchain or None,
            "job": running.get((worker.host, lane.id)),
        }
        for lane in worker.lanes
    ]
    return {
        "id": worker.id,
        "host": worker.host,
        "version": worker.version,
        "started": worker.started.isoformat(),
        "draining": worker.draining,
        "kernels": list(worker.kernels),
        "devices": [{name: value for name, value in lane.items() if value is not None} for lane in lanes],
    }
