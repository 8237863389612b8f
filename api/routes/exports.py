"""`/v1/export`: everything as one file, made while it is sent, of one moment of the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tilewise.api.http import schemas
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
)
from tilewise.api.service.answer_cache import Answer
from tilewise.api.service.service import Service
from tilewise.db.exchange.native.export_file import VERSION, stream_native
from tilewise.db.records import canonical_json
from tilewise.db.store import Store, Wanted
from tilewise.errors import StoreError

__all__ = ["plain"]

plain = APIRouter(route_class=PlainRoute, tags=["files"])

_MOST_SECONDS = 600.0
"""How long a client may take to read an export: the database keeps what was replaced meanwhile."""

_log = logging.getLogger(__name__)


@plain.get(
    "/v1/export",
    summary="Every best with its evidence",
    response_model=schemas.Export,
    responses={**UNCHANGED, **MISUSED, **DATABASE_FAILS},
    openapi_extra={"parameters": NARROWING},
)
async def export(request: Request) -> Response:
    """The file that `tilewise import` and the decorator read: of one moment, and sent as it is read. A connection that
    ends before the checksum, which comes last, was cut off."""
    asked, service = given(request), service_of(request)
    wanted = Wanted(kernel=asked.take("kernel"), dtype=asked.take("dtype"), device=asked.take("device"))
    asked.finish("kernel, dtype or device")
    tag = await service.read(_tag, service.store, wanted)
    return unchanged(request, tag) or _Export(service, wanted, tag)


def _tag(store: Store, wanted: Wanted) -> Answer:
    """Weak: the file says when it was made, so that two of one moment differ in that."""
    about = [VERSION, store.revision(), store.mark(), wanted.kernel, wanted.dtype, wanted.device]
    strong = Answer.of(canonical_json(about).encode())
    return Answer(b"", b"W/" + strong.tag)


class _Export(StreamingResponse):
    """The file in pieces. What fails before the first one is answered as an error; later the connection ends there."""

    def __init__(self, service: Service, wanted: Wanted, answer: Answer) -> None:
        headers = {"etag": answer.tag.decode(), "cache-control": CACHE_CONTROL.decode()}
        super().__init__((), media_type="application/json", headers=headers)
        self._service, self._wanted = service, wanted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._service.export_turn():
            pieces = _pieces(self._service.store, self._wanted)
            with closing(pieces):
                first = await self._service.run(next, pieces)
                self.body_iterator = self._following(first, pieces)
                try:
                    async with asyncio.timeout(_MOST_SECONDS):
                        await super().__call__(scope, receive, send)
                except (TimeoutError, StoreError) as error:
                    _log.error("an export was cut off: %s", str(error) or f"it took over {_MOST_SECONDS:g} s")

    async def _following(self, piece: bytes, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        while piece:
            yield piece
            piece = await self._service.run(next, pieces, b"")


def _pieces(store: Store, wanted: Wanted) -> Generator[bytes]:
    with store.snapshot() as frozen:
        scopes = frozen.scopes(wanted.kernel, wanted.device)
        yield from stream_native(frozen, (scope for scope in scopes if wanted.dtype in (None, scope.dtype)))
