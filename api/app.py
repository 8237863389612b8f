"""The application: routes, errors and limits around one open store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

import tilewise
from tilewise.api.http import problems, schemas
from tilewise.api.http.auth import Authorization, required_right
from tilewise.api.http.body_limit import BodyLimit
from tilewise.api.http.compression import Compression
from tilewise.api.http.middleware import Middleware
from tilewise.api.pages import faults
from tilewise.api.pages.routes import PAGES
from tilewise.api.routes import explanations, exports, health, helion, imports, jobs, listings, lookups, work, workers
from tilewise.api.service.service import Options, Service
from tilewise.api.service.siblings import Siblings
from tilewise.db.tokens import Right

__all__ = ["create_app"]


_PARTS = (
    lookups.plain,
    explanations.plain,
    listings.plain,
    exports.plain,
    imports.plain,
    jobs.plain,
    jobs.typed,
    workers.plain,
    work.typed,
    helion.plain,
    helion.typed,
    health.plain,
)

_TAGS = {
    "look-ups": "Which config is fastest, and why",
    "listings": "What is stored: kernels, devices, problems, trials",
    "files": "Exports and imports",
    "jobs": "Tunings that the service runs",
    "workers": "What a worker asks of the service",
    "helion": "A remote cache for Helion",
    "health": "Whether the service runs, and its metrics",
}


def create_app(store_url: str, options: Options | None = None, siblings: Siblings | None = None) -> FastAPI:
    """Return the service on the store at `store_url`, which the server opens when it starts and creates if missing.

    It is one of `siblings`, the processes of a server; the only one by default.
    """
    service = Service(store_url, options or Options(), siblings)

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
        description="Look-ups, jobs and files of tile configs. Errors are problem details (RFC 9457).",
        contact={"name": "tilewise", "url": "https://github.com/tilewise/tilewise"},
        servers=[{"url": "/", "description": "The server that this document comes from"}],
        openapi_tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        routes=[*(route for part in _PARTS for route in part.routes), *PAGES],
        lifespan=lifespan,
        docs_url=None,  # both pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # looks for settings in every request: 5 us
    )
    for route in app.routes:
        if isinstance(route, APIRoute):
            route.operation_id = route.name  # the name of the method in generated clients
    app.state.service = service
    app.add_middleware(BodyLimit)
    app.add_middleware(Authorization, service=service)
    app.add_middleware(Compression)
    app.add_middleware(Middleware, service=service, unexpected=faults.unexpected)  # the last added is the outermost
    problems.install(app)
    faults.install(app)
    return app


class _Documented(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Return FastAPI's document, with errors under their own media type instead of `application/json`."""
        if self.openapi_schema is None:
            self.openapi_schema = super().openapi()
            _add_rights(self.openapi_schema)
            _add_schema(self.openapi_schema, schemas.LookupRequest)
            for response in _error_responses(self.openapi_schema):
                response["content"] = {problems.MEDIA_TYPE: response["content"]["application/json"]}
        return self.openapi_schema


def _add_schema(document: dict[str, Any], model: type[BaseModel]) -> None:
    """Document a body that FastAPI does not read itself, and the schemas that it uses."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    document["components"]["schemas"] |= {**schema.pop("$defs", {}), model.__name__: schema}


_REFUSALS = {
    "401": "The token is missing, unknown or revoked.",
    "403": "The token does not allow this.",
    "429": "Too many requests; `Retry-After` says when to retry.",
}


def _add_rights(document: dict[str, Any]) -> None:
    """Document the right that `required_right` demands for each operation, and its refusals."""
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            right = required_right(method.upper(), path)
            if right is None:
                operation["security"] = []
                continue
            operation["security"] = [{"token": []}, *([{}] if right is Right.READ else [])]
            for status, text in _REFUSALS.items():
                operation["responses"].setdefault(status, {"description": text, "content": dict(problem)})


def _error_responses(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        for operation in path.values():
            yield from (response for status, response in operation["responses"].items() if status >= "400")
