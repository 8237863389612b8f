"""Imports of results, which are checked as by `tilewise import` before any of them can become a best."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from tilewise.api.http import schemas
from tilewise.api.http.routing import DATABASE_FAILS, PlainRoute, service_of
from tilewise.db.exchange.import_file import ImportFile
from tilewise.db.exchange.native.export_file import read_native
from tilewise.db.store import MergeReport
from tilewise.errors import BadImport

__all__ = ["plain"]

plain = APIRouter(route_class=PlainRoute, tags=["files"])

_GZIP = b"\x1f\x8b"
_MAX_REFUSALS = 100


@plain.post(
    "/v1/import",
    summary="Import results of another database",
    response_model=schemas.Imported,
    responses={
        400: {"model": schemas.Problem, "description": "The body is not an export file."},
        413: {"model": schemas.Problem, "description": "The body is too large."},
        **DATABASE_FAILS,
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Export"}}},
        }
    },
)
async def import_results(request: Request) -> Response:
    """Merge an export file in one transaction. A stored trial with stronger evidence stays. Impossible parts are
    refused, each with its place and the reason; the rest is imported."""
    data = await request.body()
    if data.startswith(_GZIP):
        raise BadImport("the file is compressed; send it as plain JSON")
    service = service_of(request)
    reading = await service.run(_admitted, data)
    report = await service.write(service.writer.merge, [(offer.scope, offer.trials) for offer in reading.offers])
    await service.answer_cache.catch_up()
    return JSONResponse(_answer(reading, report))


def _admitted(data: bytes) -> ImportFile:
    from tilewise.tuner.ingest.import_checks import checked_import

    return checked_import(read_native(data))


def _answer(reading: ImportFile, report: MergeReport) -> dict[str, Any]:
    refused = [{"place": refusal.place, "reason": refusal.reason} for refusal in reading.refusals[:_MAX_REFUSALS]]
    counts = {"added": report.added, "updated": report.updated, "unchanged": report.unchanged}
    return {**counts, "bests_changed": len(report.changes), "refused": refused}
