"""The application: routes, errors and limits around one open store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import tilewise
from tilewise.api import health, listings, lookups, problems
from tilewise.api.front import Front
from tilewise.api.pages.routes import PAGES
from tilewise.api.service import Options, Service

__all__ = ["LARGEST_BODY", "create_app"]

LARGEST_BODY = 1 << 20
"""Bytes: a batch of `MOST_QUERIES` queries takes some 150,000."""


def create_app(store_url: str, options: Options | None = None) -> FastAPI:
    """The service on the store at `store_url`, which is opened when the server starts and created where missing."""
    service = Service(store_url, options or Options())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.open()
        app.state.store = service.store
        try:
            yield
        finally:
            await service.close()

    app = _Documented(
        title="tilewise",
        version=tilewise.__version__,
        summary="The fastest known tile configs of Triton kernels, by shape, dtype and device",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        routes=[*lookups.plain.routes, *lookups.typed.routes, *listings.plain.routes, *health.plain.routes, *PAGES],
        lifespan=lifespan,
        docs_url=None,  # both pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.add_middleware(BodyLimit)
    app.add_middleware(Front, service=service)  # the last added is the outermost
    problems.install(app)
    return app


class _Documented(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """FastAPI's document, with errors under their own media type: it would put them under `application/json`."""
        if self.openapi_schema is None:
            self.openapi_schema = super().openapi()
            for response in _error_responses(self.openapi_schema):
                response["content"] = {problems.MEDIA_TYPE: response["content"]["application/json"]}
        return self.openapi_schema


def _error_responses(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        for operation in path.values():
            yield from (response for status, response in operation["responses"].items() if status >= "400")


class BodyLimit:
    """Refuse bodies over `LARGEST_BODY`, announced or streamed, before they fill the memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            receive = _limited(receive)
        await self._app(scope, receive, send)


def _limited(receive: Receive) -> Receive:
    """`receive`, raising HTTP's 413 as soon as more than `LARGEST_BODY` has come."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > LARGEST_BODY:
            raise HTTPException(413, f"the body is larger than {LARGEST_BODY} bytes; send fewer queries at once")
        return message

    return counted
