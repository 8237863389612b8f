"""Listings: kernels, devices, problems, trials, and the history of a best config."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tilewise.api.http import schemas
from tilewise.api.http.lookup_request import question_from_parameters
from tilewise.api.http.routing import (
    DATABASE_FAILS,
    MISUSED,
    NARROWING,
    UNCHANGED,
    PlainRoute,
    documented,
    given,
    next_of,
    paged,
    service_of,
    tagged,
    wanted_of,
)
from tilewise.api.routes.lookups import QUESTION
from tilewise.db.exchange.trials import trial_to_json
from tilewise.db.records import Result, Scope, Status, Trial
from tilewise.db.store import START, Listed, Place, Written
from tilewise.errors import NotFound, UsageError
from tilewise.kernels import registry

__all__ = ["plain"]

plain = APIRouter(route_class=PlainRoute, tags=["listings"])

_MAX_TRIALS = 1000
_MAX_PROBLEMS = 200
_PLACE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})", re.ASCII)


@plain.get(
    "/v1/kernels", summary="List the kernels that can be tuned", response_model=schemas.Kernels, responses=UNCHANGED
)
async def kernels(request: Request) -> Response:
    """Return the kernels that come with tilewise and those that the server was started with. Other kernels with stored
    results can be looked up too."""
    return tagged(request, {"kernels": [registry.load(name).to_json() for name in registry.names()]})


@plain.get("/v1/devices", summary="List the devices", response_model=schemas.Devices, responses=UNCHANGED)
async def devices(request: Request) -> Response:
    """Return the devices as seen from the server's own machine."""
    from tilewise.tuner.devices.registry import rows

    found = await service_of(request).run(rows)
    return tagged(request, {"devices": [row.to_json() for row in found]})


@plain.get(
    "/v1/problems",
    summary="List problems, those written to last first",
    response_model=schemas.Problems,
    responses={200: {"links": {"next": next_of("problems")}}, **UNCHANGED, **MISUSED, **DATABASE_FAILS},
    openapi_extra={
        "parameters": [
            *NARROWING,
            documented("limit", "problems per page", type="integer", minimum=1, maximum=_MAX_PROBLEMS, default=50),
            documented("after", "`next` of the previous page", pattern="^[0-9]{1,18}-[0-9]{1,18}$"),
        ]
    },
)
async def problems(request: Request) -> Response:
    """Return problems in pages, with their best configs; `config` is null where none is verified. `next` and the `Link`
    header lead to the next page; they are absent on the last."""
    parameters, service = given(request), service_of(request)
    wanted = wanted_of(parameters)
    limit = parameters.take_number("limit", 50, least=1, most=_MAX_PROBLEMS)
    after = parameters.take("after")
    parameters.finish("kernel, dtype, device, dims, limit or after")
    before = Written(*_numbers(after)) if after else None
    page = await service.run(service.store.results, wanted, before=before, most=limit)
    place = f"{page[-1][0].revision}-{page[-1][0].scope}" if len(page) == limit else None
    return tagged(request, *paged(request, {"problems": [_problem(result) for _, result in page]}, "after", place))


@plain.get(
    "/v1/trials",
    summary="List trials",
    response_model=schemas.Trials,
    responses={200: {"links": {"next": next_of("trials")}}, **UNCHANGED, **MISUSED, **DATABASE_FAILS},
    openapi_extra={
        "parameters": [
            *NARROWING,
            documented("status", "only trials with this status", form="Status"),
            documented("limit", "trials per page", type="integer", minimum=1, maximum=_MAX_TRIALS, default=100),
            documented("after", "`next` of the previous page", pattern="^[0-9]{1,18}-[0-9]{1,18}$"),
        ]
    },
)
async def trials(request: Request) -> Response:
    """Return trials in pages, including trials that newer ones replaced. `next` and the `Link` header lead to the next
    page; they are absent on the last. A page before the last may be shorter than `limit`, or even empty."""
    parameters, service = given(request), service_of(request)
    wanted = wanted_of(parameters)
    status = parameters.take_choice("status", [str(status) for status in Status])
    limit = parameters.take_number("limit", 100, least=1, most=_MAX_TRIALS)
    after = _place(parameters.take("after"))
    parameters.finish("kernel, dtype, device, dims, status, limit or after")
    page, following = await service.run(
        service.store.trial_page, wanted, status=Status(status) if status else None, after=after, most=limit
    )
    place = f"{following.scope}-{following.trial}" if following else None
    return tagged(request, *paged(request, {"trials": [_trial(listed) for listed in page]}, "after", place))


@plain.get(
    "/v1/history/{kernel}",
    summary="List the best configs that a problem has had",
    response_model=schemas.History,
    responses={
        **UNCHANGED,
        **MISUSED,
        404: {"model": schemas.Problem, "description": "Nothing is stored for this problem."},
        **DATABASE_FAILS,
    },
    openapi_extra={"parameters": QUESTION},
)
async def history(request: Request) -> Response:
    """Return every trial that was the fastest for its source, toolchain and clock when it was recorded, in the order of
    recording."""
    service = service_of(request)
    question = question_from_parameters(request.path_params["kernel"], given(request))
    found = await service.run(service.store.history, question)
    if not found:
        raise NotFound("no verified result is stored for this problem; /v1/configs names the nearest tuned shapes")
    return tagged(request, {**question.to_json(), "bests": [_best(scope, trial) for scope, trial in found]})


def _place(text: str | None) -> Place:
    return START if text is None else Place(*_numbers(text))


def _numbers(text: str) -> tuple[int, int]:
    if not (found := _PLACE.fullmatch(text)):
        raise UsageError("after is not a position in the listing; expected `next` of the previous page")
    return int(found[1]), int(found[2])


def _problem(result: Result) -> dict[str, Any]:
    winner, body = result.winner, result.to_json()
    kept = ("config", "verified", "default", "trials", "time_us", "tuned_at")
    known = {name: body[name] for name in kept if body.get(name) is not None}
    speed_up = {"speed_up": result.speed_up} if winner and result.speed_up else {}
    return {"key": result.scope.key, **result.scope.to_json(), "config": None, **known, **speed_up}


def _trial(listed: Listed) -> dict[str, Any]:
    return listed.scope.to_json() | trial_to_json(listed.trial) | {"current": listed.current}


def _best(scope: Scope, trial: Trial) -> dict[str, Any]:
    body = {"config": dict(trial.config), "time_us": trial.time_us, "search": trial.search, "ordinal": trial.ordinal}
    body |= {"source_hash": scope.source_hash, "clock": str(scope.clock), "toolchain": scope.toolchain}
    body |= {"tuned_at": trial.created.isoformat()}
    return {name: value for name, value in body.items() if value is not None}
