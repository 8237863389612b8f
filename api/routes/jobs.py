"""Tuning jobs: submission, listing, cancellation, and events of their progress."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tilewise.api.http import schemas
from tilewise.api.http.auth import caller_of, token_of
from tilewise.api.http.routing import (
    DATABASE_FAILS,
    MISUSED,
    PlainRoute,
    documented,
    given,
    next_of,
    paged,
    service_of,
)
from tilewise.api.jobs.fleet import runnable_on, why_it_waits
from tilewise.api.service.answers import registered
from tilewise.api.service.service import Service
from tilewise.db import jobs as kept
from tilewise.db.jobs import Job, State
from tilewise.db.records import Shape
from tilewise.errors import NotFound, StoreError, UnknownKernel, UsageError
from tilewise.kernels import registry
from tilewise.tuner.devices.registry import choose
from tilewise.tuner.lookup.resolve import clip
from tilewise.tuner.space.problem_checks import make_problem

__all__ = ["job_number", "placed_json", "plain", "typed"]

plain = APIRouter(route_class=PlainRoute, tags=["jobs"])
typed = APIRouter(tags=["jobs"])

_POLL_SECONDS = 0.5
_QUIET_SECONDS = 15.0
"""Time without news after which a comment is sent: some proxies end a silent connection."""

_NUMBER = documented(
    "number", "the job's number", where="path", required=True, type="integer", minimum=1, maximum=2**63 - 1
)
_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"const": "job"},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": "#/components/schemas/Job"},
        },
    },
}
"""The schema of the stream's events: the `itemSchema` of OpenAPI 3.2, under a name that 3.1 allows."""
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schemas.Problem, "description": "There is no such job."}}


@typed.post(
    "/v1/jobs",
    summary="Submit a tuning job",
    status_code=201,
    response_model=schemas.Job,
    responses={
        200: {"model": schemas.Job, "description": "The existing job for the same request: it waits, runs or is done."},
        **MISUSED,
        404: {"model": schemas.Problem, "description": "/v1/kernels does not list the kernel."},
        413: {"model": schemas.Problem, "description": "The body is too large."},
        422: {
            "model": schemas.ValidationProblem,
            "description": "The body is not valid JSON or does not match its schema.",
        },
        **DATABASE_FAILS,
    },
)
async def submit(request: Request, body: schemas.JobRequest) -> Response:
    """Return the job of this request; the same request twice is one job. Jobs run on the devices of the server and of
    live workers, one per device, by priority and then by age. Each trial is stored as soon as it is made."""
    service = service_of(request)
    job_request = await service.run(_request, service, body)
    how = {"priority": body.priority, **await _on_account(service, request)}
    job, new = await service.write(service.jobs_writer.submit, job_request, **how)
    if new:
        service.wake_runner()
    headers = {"location": f"/v1/jobs/{job.id}"}
    document = await service.run(placed_json, service, job)
    return JSONResponse(document, status_code=201 if new else 200, headers=headers)


@plain.get(
    "/v1/jobs",
    summary="List jobs, the newest first",
    response_model=schemas.Jobs,
    responses={200: {"links": {"next": next_of("jobs", "before")}}, **MISUSED, **DATABASE_FAILS},
    openapi_extra={
        "parameters": [
            documented("limit", "jobs per page", type="integer", minimum=1, maximum=200, default=50),
            documented(
                "before", "number of the last job on the previous page", type="integer", minimum=1, maximum=2**63 - 1
            ),
            documented("state", "only jobs in this state", enum=[str(state) for state in State]),
            documented("kernel", "only jobs of this kernel", minLength=1),
            documented("device", "only jobs of the device with this id", minLength=1),
        ]
    },
)
async def jobs(request: Request) -> Response:
    """Return one page of jobs. For the next page, pass `next`, the number of its last job, as `before`; the `Link`
    header leads there too. They are absent on the last page."""
    parameters, service = given(request), service_of(request)
    limit = parameters.take_number("limit", 50, least=1, most=200)
    before = parameters.take_number("before", 2**63 - 1, least=1, most=2**63 - 1)
    state = parameters.take_choice("state", [str(state) for state in State])
    wanted = {"state": state, "kernel": parameters.take("kernel"), "device": parameters.take("device")}
    parameters.finish("limit, before, state, kernel or device")
    page = await service.run(service.jobs.page, before=before, most=limit, **wanted)
    last = str(page[-1].id) if len(page) == limit else None
    document, headers = paged(request, {"jobs": [job_json(job) for job in page]}, "before", last)
    return JSONResponse(document, headers=headers)


@plain.get(
    "/v1/jobs/{number}",
    summary="Show one job",
    response_model=schemas.Job,
    responses={**_UNKNOWN, **DATABASE_FAILS},
    openapi_extra={"parameters": [_NUMBER]},
)
async def job(request: Request) -> Response:
    """Return the job's request, its progress, and where it runs or why it waits."""
    service = service_of(request)
    found = await service.run(service.jobs.get, job_number(request))
    return JSONResponse(await service.run(placed_json, service, found))


@plain.delete(
    "/v1/jobs/{number}",
    summary="Cancel a job",
    response_model=schemas.Job,
    responses={**_UNKNOWN, **DATABASE_FAILS},
    openapi_extra={"parameters": [_NUMBER]},
)
async def cancel(request: Request) -> Response:
    """Cancel a waiting job at once, and a running one after its current trial; its trials are kept. A job that has
    ended stays as it is."""
    service = service_of(request)
    return JSONResponse(job_json(await service.write(service.jobs_writer.cancel, job_number(request))))


@plain.post(
    "/v1/jobs/{number}/retry",
    summary="Retry a job",
    response_model=schemas.Job,
    responses={**_UNKNOWN, **DATABASE_FAILS},
    openapi_extra={"parameters": [_NUMBER]},
)
async def retry(request: Request) -> Response:
    """Queue a failed or cancelled job again; it goes on from its trials. Any other job stays as it is. If another job
    serves the same request by now, return that one."""
    service = service_of(request)
    account = await _on_account(service, request)
    found = await service.write(service.jobs_writer.retry, job_number(request), **account)
    service.wake_runner()
    return JSONResponse(await service.run(placed_json, service, found))


@plain.delete(
    "/v1/jobs/{number}/record",
    summary="Delete the record of a job",
    response_model=schemas.Job,
    responses={**MISUSED, **_UNKNOWN, **DATABASE_FAILS},
    openapi_extra={"parameters": [_NUMBER]},
)
async def delete_record(request: Request) -> Response:
    """Delete the record of a job that has ended, and return it. Its trials stay, and an equal request is a new job."""
    service = service_of(request)
    return JSONResponse(job_json(await service.write(service.jobs_writer.remove, job_number(request))))


@plain.get(
    "/v1/jobs/{number}/events",
    summary="Follow the progress of a job",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}, "x-item-schema": _EVENT}}},
        **_UNKNOWN,
        **DATABASE_FAILS,
    },
    openapi_extra={"parameters": [_NUMBER]},
)
async def events(request: Request) -> Response:
    """Stream server-sent events: a `job` event with the job's JSON now, and one after each change. The stream ends when
    the job has ended."""
    service = service_of(request)
    job = await service.run(service.jobs.get, job_number(request))
    holder = await service.read(service.tokens.check, text) if (text := token_of(request.scope)) else None
    limits = service.limits
    places, caller = (limits.streams, holder[0]) if holder else (limits.anonymous_streams, caller_of(request))
    return _Events(service, job, places.one(caller))


class _Events(StreamingResponse):
    """The events of a job, which hold a place as long as the client listens. Without a place it is answered as busy."""

    def __init__(self, service: Service, job: Job, place: AbstractContextManager[None]) -> None:
        super().__init__(_stream(service, job), media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await super().__call__(scope, receive, send)


async def _stream(service: Service, job: Job) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    sent, quiet = "", loop.time()
    while True:
        now = json.dumps(job_json(job), separators=(",", ":"))
        if now != sent:
            sent, quiet = now, loop.time()
            yield f"event: job\ndata: {now}\n\n"
        elif loop.time() - quiet > _QUIET_SECONDS:
            quiet = loop.time()
            yield ": still here\n\n"
        if job.state.is_final or service.stopping:
            return
        await asyncio.sleep(_POLL_SECONDS)
        try:
            job = await service.run(service.jobs.get, job.id)
        except StoreError:  # the database may come back; keep the client's connection
            continue


def job_json(job: Job) -> dict[str, Any]:
    """Return a job as JSON, without its owner, which is internal to the server."""
    body: dict[str, Any] = {
        "id": job.id,
        "kernel": job.kernel,
        "shapes": [dict(dims) for dims in job.shapes],
        "dtype": job.dtype,
        "device": job.device,
        "trials": job.trials,
        "seconds": job.seconds,
        "search": job.search,
        "seed": job.seed,
        "priority": job.priority,
        "state": str(job.state),
        "reason": job.reason,
        "progress": dict(job.progress),
        "attempts": job.attempts,
        "cancelling": job.cancelling,
        "toolchain": job.toolchain or None,
        "fresh": job.fresh or None,
        "ran_on": f"{job.host} {job.lane}" if job.lane else None,
    }
    moments = {"created": job.created, "started": job.started, "finished": job.finished, "deadline": job.deadline}
    body |= {name: moment.isoformat() for name, moment in moments.items() if moment is not None}
    return {name: value for name, value in body.items() if value is not None}


def placed_json(service: Service, job: Job) -> dict[str, Any]:
    """Return a job as JSON; of one that waits, also which devices could run it, and why none does."""
    if job.state is not State.QUEUED:
        return job_json(job)
    live = service.fleet.live()
    waits = why_it_waits(job, live, service.jobs.running(), starting=service.runs_jobs)
    return job_json(job) | {"runnable_on": runnable_on(job, live), "waits": waits}


async def _on_account(service: Service, request: Request) -> dict[str, int]:
    """Return the id of the request's token and its quota, as arguments of `Jobs`."""
    found = await service.read(service.tokens.check, token_of(request.scope))
    return {} if found is None else {"token": found[0], "quota": service.options.jobs_a_token}


def _request(service: Service, body: schemas.JobRequest) -> kept.Request:
    """Convert the body to a job request. Raises `UnknownKernel` or `UsageError` if it can never run here."""
    known = registered(body.kernel)
    if known is None:
        raise UnknownKernel(f"unknown kernel '{clip(body.kernel)}'; {registry.known(body.kernel)}")
    spec, source_hash = known
    shapes: list[Shape] = []
    for index, dims in enumerate(body.shapes):
        try:
            shape = make_problem(spec, dims, body.dtype).shape
        except UsageError as error:
            raise type(error)(f"shapes[{index}]: {error}") from error
        shapes += [shape] if shape not in shapes else []
    device = choose("auto") if body.device == "auto" else body.device
    if device not in (known_devices := service.asked_for()):
        raise UsageError(
            f"this server has no device '{clip(device)}'; it has {', '.join(sorted(known_devices)) or 'none'}"
        )
    changing = body.search == "retune" or body.fresh
    return kept.Request(
        body.kernel,
        source_hash,
        shapes,
        body.dtype,
        device,
        body.trials,
        body.seconds,
        body.search,
        body.seed,
        revision=service.store.revision() if changing else None,
        toolchain=body.toolchain,
        fresh=body.fresh,
        deadline=None if body.within is None else datetime.now(UTC) + timedelta(seconds=body.within),
    )


def job_number(request: Request) -> int:
    """Return the job number in the path. Raises `NotFound` if it is not a number that a job can have."""
    text: str = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
        raise NotFound(f"unknown job '{clip(text)}'; expected a number")
    return int(text)
