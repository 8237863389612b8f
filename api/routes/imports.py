"""Imports of results, which are checked as by `tilewise import` before any of them can become a best."""

from __future__ import annotations

from tempfile import NamedTemporaryFile
from typing import IO

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from tilewise.api.http import schemas
from tilewise.api.http.routing import DATABASE_FAILS, PlainRoute, body_of, service_of
from tilewise.errors import NoSpace

__all__ = ["plain"]

plain = APIRouter(route_class=PlainRoute, tags=["files"])

_PIECE = 1 << 20


@plain.post(
    "/v1/import",
    summary="Import results of another database",
    response_model=schemas.Imported,
    responses={
        400: {"model": schemas.Problem, "description": "The body is not an export file."},
        413: {"model": schemas.Problem, "description": "The body is too large."},
        **DATABASE_FAILS,
    },
    openapi_extra={"requestBody": body_of("Export")},
)
async def import_results(request: Request) -> Response:
    """Merge an export file, plain or gzipped, in one transaction. A stored trial with stronger evidence stays.
    Impossible parts are refused, each with its place and the reason; the rest is imported."""
    service = service_of(request)
    length = request.headers.get("content-length", "")
    place = service.import_place(int(length) if length.isdecimal() else None)
    with place, NamedTemporaryFile(prefix="tilewise-import-") as file:
        try:
            await _receive(request, file)
        except OSError as error:
            raise NoSpace(f"cannot keep an import in {file.name}: {error}") from error
        return JSONResponse(await service.merge_file(file.name))


async def _receive(request: Request, file: IO[bytes]) -> None:
    """Write the body to the file as it arrives."""
    piece = bytearray()
    async for part in request.stream():
        piece += part
        if len(piece) >= _PIECE:
            await run_in_threadpool(file.write, bytes(piece))
            piece.clear()
    await run_in_threadpool(file.write, bytes(piece))
    await run_in_threadpool(file.flush)
