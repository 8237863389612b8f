"""The routes of the web pages. They read the store at each request; nothing is timed or written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tilewise.api.http.routing import service_of
from tilewise.api.pages import api, fleet, jobs, kernel, search
from tilewise.api.pages.listing import row
from tilewise.api.pages.problem import routes as problem_routes
from tilewise.api.pages.rendering import page
from tilewise.db.store import Wanted, Written
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.tuner.space.problem_checks import parse_dims

__all__ = ["PAGES"]

_PAGE_SIZE = 50
_MOST_COUNTED = 10_000
_DTYPES = ("float32", "float16", "bfloat16")
_FILTERS = ("kernel", "device", "dtype", "dims")


async def problems(request: Request) -> Response:
    """Show tuned problems, the latest first, filtered by the form above the table."""
    return await service_of(request).run(_problems, request)


def _problems(request: Request) -> Response:
    store, filters = service_of(request).store, {name: request.query_params.get(name, "").strip() for name in _FILTERS}
    rows, count, following, fault = [], 0, "", ""
    try:
        found = store.results(_wanted(filters), before=_before(request.query_params.get("before")), most=_PAGE_SIZE)
        rows = [row(result) for _, result in found]
        count = store.count(_wanted(filters), most=_MOST_COUNTED) if rows else 0
        if len(found) == _PAGE_SIZE:
            following = "/?" + urlencode({**{k: v for k, v in filters.items() if v}, "before": _place(found[-1][0])})
    except UsageError as error:
        fault = str(error)
    return page(
        "problems.html",
        here="problems",
        filters=filters,
        narrowed=any(filters.values()),
        fault=fault,
        rows=rows,
        count=f"{count:,}" if count < _MOST_COUNTED else f"{_MOST_COUNTED:,} or more",
        first="before" not in request.query_params,
        next=following,
        kernels=sorted({*registry.names(), *store.kernels()}),
        devices=store.devices(),
        dtypes=_DTYPES,
        status=400 if fault else 200,
    )


def _wanted(filters: Mapping[str, str]) -> Wanted:
    return Wanted(
        kernel=filters["kernel"] or None,
        dtype=filters["dtype"] or None,
        device=filters["device"] or None,
        dims=parse_dims(filters["dims"]) if filters["dims"] else {},
    )


_PLACE = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)


def _place(place: Written) -> str:
    return f"{place.revision}-{place.scope}"


def _before(text: str | None) -> Written | None:
    if text is None:
        return None
    if not (found := _PLACE.fullmatch(text)):
        raise UsageError(f"before={text[:30]!r}; expected the place from the link to the next page")
    return Written(int(found[1]), int(found[2]))


PAGES: list[BaseRoute] = [
    Route("/", problems),
    *problem_routes.ROUTES,
    Route("/kernels/{kernel}", kernel.kernel),
    Route("/search", search.search),
    Route("/docs", api.api),
    Route("/fleet", fleet.fleet),
    Route("/jobs", jobs.jobs),
    Route("/jobs/{number}", jobs.job),
    Mount("/static", StaticFiles(directory=Path(__file__).with_name("static"))),
]
