"""`/v1/export`: everything as one file, streamed from one snapshot of the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tilewise.api.http import schemas
from tilewise.api.http.auth import caller_of
from tilewise.api.http.middleware import CACHE_CONTROL
from tilewise.api.http.routing import (
    DATABASE_FAILS,
    MISUSED,
    NARROWING,
    UNCHANGED,
    PlainRoute,
    given,
    service_of,
    unchanged,
    wanted_of,
)
from tilewise.api.service.answer_cache import Answer
from tilewise.api.service.service import Service
from tilewise.db.exchange.native.export_file import VERSION, stream_native
from tilewise.db.records import Shape, canonical_json
from tilewise.db.store import Store, Wanted
from tilewise.errors import StoreError

__all__ = ["plain"]

plain = APIRouter(route_class=PlainRoute, tags=["files"])

_MAX_SECONDS = 600.0
"""Time that a client may take to read an export: until then the database must keep replaced rows."""

_log = logging.getLogger(__name__)


@plain.get(
    "/v1/export",
    summary="Export every best config with its evidence",
    response_model=schemas.Export,
    responses={**UNCHANGED, **MISUSED, **DATABASE_FAILS},
    openapi_extra={"parameters": NARROWING},
)
async def export(request: Request) -> Response:
    """Stream the file that `tilewise import` and the decorator read, from one snapshot of the database. The checksum
    comes last: a file without it was cut off."""
    parameters, service = given(request), service_of(request)
    wanted = wanted_of(parameters)
    parameters.finish("kernel, dtype, device or dims")
    tag = await service.read(_tag, service.store, wanted)
    return unchanged(request, tag) or _Export(service, wanted, tag, caller_of(request))


def _tag(store: Store, wanted: Wanted) -> Answer:
    """Return a weak entity tag: a file holds the time of its creation, so two with the same content are not equal."""
    identity = [VERSION, store.revision(), store.mark(), wanted.kernel, wanted.dtype, wanted.device, dict(wanted.dims)]
    strong = Answer.of(canonical_json(identity).encode())
    return Answer(b"", b"W/" + strong.tag)


class _Export(StreamingResponse):
    """The file in pieces. A failure before the first piece is answered as an error; a later one ends the connection."""

    def __init__(self, service: Service, wanted: Wanted, answer: Answer, caller: str) -> None:
        headers = {"etag": answer.tag.decode(), "cache-control": CACHE_CONTROL.decode()}
        super().__init__((), media_type="application/json", headers=headers)
        self._service, self._wanted, self._caller = service, wanted, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._service.export_turn(self._caller):
            pieces = _pieces(self._service.store, self._wanted)
            with closing(pieces):
                first = await self._service.run(next, pieces)
                self.body_iterator = self._following(first, pieces)
                try:
                    async with asyncio.timeout(_MAX_SECONDS):
                        await super().__call__(scope, receive, send)
                except (TimeoutError, StoreError) as error:
                    _log.error("an export was cut off: %s", str(error) or f"it took over {_MAX_SECONDS:g} s")

    async def _following(self, piece: bytes, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        while piece:
            yield piece
            piece = await self._service.run(next, pieces, b"")


def _pieces(store: Store, wanted: Wanted) -> Generator[bytes]:
    with store.snapshot() as frozen:
        scopes = frozen.scopes(wanted.kernel, wanted.device)
        yield from stream_native(frozen, (scope for scope in scopes if _is_wanted(scope.shape, scope.dtype, wanted)))


def _is_wanted(shape: Shape, dtype: str, wanted: Wanted) -> bool:
    return wanted.dtype in (None, dtype) and all(shape.get(name) == size for name, size in wanted.dims.items())
