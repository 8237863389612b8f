"""The routes of the web pages. They read the store at each request; nothing is timed or written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tilewise.api.http.routing import service_of
from tilewise.api.pages import jobs
from tilewise.api.pages.rendering import missing, page
from tilewise.api.pages.timelines import Timelines
from tilewise.api.pages.views import problem_view, row
from tilewise.api.service.answers import registered
from tilewise.db.records import Clock, Scope, shape_text
from tilewise.db.store import Store, Wanted
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.explain.timeline import is_drawable
from tilewise.tuner.space.problem_checks import parse_dims

__all__ = ["PAGES"]

_PAGE_SIZE = 50
_DTYPES = ("float32", "float16", "bfloat16")
_FILTERS = ("kernel", "device", "dtype", "dims")

_timelines = Timelines()


async def problems(request: Request) -> Response:
    """Show tuned problems, the latest first, filtered by the form above the table."""
    return await run_in_threadpool(_problems, request)


def _problems(request: Request) -> Response:
    store, filters = _store(request), {name: request.query_params.get(name, "").strip() for name in _FILTERS}
    rows, following, fault = [], "", ""
    try:
        found = store.results(_wanted(filters), before=_before(request.query_params.get("before")), most=_PAGE_SIZE)
        rows = [row(result) for _, result in found]
        if len(found) == _PAGE_SIZE:
            following = "/?" + urlencode({**{k: v for k, v in filters.items() if v}, "before": found[-1][0]})
    except UsageError as error:
        fault = str(error)
    return page(
        "problems.html",
        here="problems",
        filters=filters,
        narrowed=any(filters.values()),
        fault=fault,
        rows=rows,
        next=following,
        kernels=sorted({*registry.names(), *store.kernels()}),
        devices=store.devices(),
        dtypes=_DTYPES,
        status=400 if fault else 200,
    )


async def problem(request: Request) -> Response:
    """Show one problem on one device and toolchain: its winner, why it won, and all its trials."""
    return await run_in_threadpool(_problem, request)


def _problem(request: Request) -> Response:
    store = _store(request)
    scope = store.scope(request.path_params["key"])
    if scope is None:
        return missing("There is no such problem; it may have been tuned with another database.")
    chosen = request.query_params.get("across"), request.query_params.get("down")
    axes = cast(tuple[str, str], chosen) if all(chosen) else None
    try:
        view = problem_view(store.result(scope), store.trials(scope), _spec(scope.kernel), str(request.base_url), axes)
    except KeyError as error:
        return missing(f"No trial of this problem has a parameter {error}.")
    drawable = view.result.winner is not None and is_drawable(scope)
    return page(
        "problem.html",
        here="",
        view=view,
        timeline=f"/problems/{scope.key}/timeline.svg" if drawable else "",
        tune_again="/jobs?" + urlencode(_problem_of(scope)) if scope.kernel in registry.names() else "",
    )


def _problem_of(scope: Scope) -> dict[str, str]:
    """Return the form fields of a new job for this scope."""
    modelled = scope.clock is Clock.MODELLED
    return {
        "kernel": scope.kernel,
        "dims": shape_text(scope.shape),
        "dtype": scope.dtype,
        "device": f"model:{scope.device}" if modelled else "",
    }


async def timeline(request: Request) -> Response:
    """Draw the course of one program of a modelled winner."""
    return await run_in_threadpool(_timeline, request)


def _timeline(request: Request) -> Response:
    store = _store(request)
    scope = store.scope(request.path_params["key"])
    winner = store.result(scope).winner if scope and is_drawable(scope) else None
    drawn = _timelines.svg(scope, winner) if scope and winner else ""
    if not drawn:
        return missing("The timeline of this problem's winner cannot be drawn on this server.")
    return Response(drawn, media_type="image/svg+xml", headers={"Cache-Control": "max-age=600"})


def _store(request: Request) -> Store:
    return service_of(request).store


def _spec(kernel: str) -> KernelSpec | None:
    known = registered(kernel)
    return known[0] if known else None


def _wanted(filters: Mapping[str, str]) -> Wanted:
    return Wanted(
        kernel=filters["kernel"] or None,
        dtype=filters["dtype"] or None,
        device=filters["device"] or None,
        dims=parse_dims(filters["dims"]) if filters["dims"] else {},
    )


def _before(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
        raise UsageError(f"before={text[:30]!r}; expected the number from the link to the next page")
    return int(text)


PAGES: list[BaseRoute] = [
    Route("/", problems),
    Route("/problems/{key}", problem),
    Route("/problems/{key}/timeline.svg", timeline),
    Route("/jobs", jobs.jobs),
    Route("/jobs/{number}", jobs.job),
    Mount("/static", StaticFiles(directory=Path(__file__).with_name("static"))),
]
