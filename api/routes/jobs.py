"""Tuning jobs: submission, listing, cancellation, and events of their progress."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tilewise.api.http import schemas
from tilewise.api.http.routing import DATABASE_FAILS, MISUSED, PlainRoute, documented, given, service_of
from tilewise.api.service.answers import registered
from tilewise.api.service.service import Service
from tilewise.db import jobs as kept
from tilewise.db.jobs import Job
from tilewise.db.records import Shape
from tilewise.errors import Busy, NotFound, StoreError, UnknownKernel, UsageError
from tilewise.kernels import registry
from tilewise.tuner.devices.registry import choose
from tilewise.tuner.lookup.resolve import clip
from tilewise.tuner.space.problem_checks import make_problem

__all__ = ["job_number", "plain", "typed"]

plain = APIRouter(route_class=PlainRoute, tags=["jobs"])
typed = APIRouter(tags=["jobs"])

_MAX_STREAMS = 200
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
"""The schema of the stream's events, in the form of OpenAPI 3.2."""
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
    """Return the job of this request; the same request twice is one job. Jobs run on the server's own devices, one per
    device, by priority and then by age. Each trial is stored as soon as it is made."""
    service = service_of(request)
    job_request = await service.run(_request, service, body)
    job, new = await service.write(service.jobs_writer.submit, job_request, priority=body.priority)
    if new:
        service.wake_runner()
    headers = {"location": f"/v1/jobs/{job.id}"}
    return JSONResponse(job_json(job), status_code=201 if new else 200, headers=headers)


@plain.get(
    "/v1/jobs",
    summary="List jobs, the newest first",
    response_model=schemas.Jobs,
    responses={**MISUSED, **DATABASE_FAILS},
    openapi_extra={
        "parameters": [
            documented("limit", "jobs per page", type="integer", minimum=1, maximum=200, default=50),
            documented(
                "before", "number of the last job on the previous page", type="integer", minimum=1, maximum=2**63 - 1
            ),
        ]
    },
)
async def jobs(request: Request) -> Response:
    """Return one page of jobs. For the next page, pass the number of its last job as `before`."""
    parameters, service = given(request), service_of(request)
    limit = parameters.take_number("limit", 50, least=1, most=200)
    before = parameters.take_number("before", 2**63 - 1, least=1, most=2**63 - 1)
    parameters.finish("limit or before")
    page = await service.run(service.jobs.page, before=before, most=limit)
    return JSONResponse({"jobs": [job_json(job) for job in page]})


@plain.get(
    "/v1/jobs/{number}",
    summary="Show one job",
    response_model=schemas.Job,
    responses={**_UNKNOWN, **DATABASE_FAILS},
    openapi_extra={"parameters": [_NUMBER]},
)
async def job(request: Request) -> Response:
    """Return the job's request and its progress."""
    service = service_of(request)
    return JSONResponse(job_json(await service.run(service.jobs.get, job_number(request))))


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


@plain.get(
    "/v1/jobs/{number}/events",
    summary="Follow the progress of a job",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}, "itemSchema": _EVENT}}},
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
    if service.streams >= _MAX_STREAMS:
        raise Busy("too many event streams are open; try again later", 10.0)
    return StreamingResponse(
        _stream(service, job), media_type="text/event-stream", headers={"cache-control": "no-cache"}
    )


async def _stream(service: Service, job: Job) -> AsyncIterator[str]:
    service.streams += 1
    loop = asyncio.get_running_loop()
    sent, quiet = "", loop.time()
    try:
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
    finally:
        service.streams -= 1


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
    }
    moments = {"created": job.created, "started": job.started, "finished": job.finished}
    body |= {name: moment.isoformat() for name, moment in moments.items() if moment is not None}
    return {name: value for name, value in body.items() if value is not None}


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
    if device not in service.devices():
        raise UsageError(
            f"this server has no device '{clip(device)}'; it has {', '.join(sorted(service.devices())) or 'none'}"
        )
    budget = (body.trials, body.seconds)
    revision = service.store.revision() if body.search == "retune" else None
    return kept.Request(body.kernel, source_hash, shapes, body.dtype, device, *budget, body.search, body.seed, revision)


def job_number(request: Request) -> int:
    """Return the job number in the path. Raises `NotFound` if it is not a number that a job can have."""
    text: str = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
        raise NotFound(f"unknown job '{clip(text)}'; expected a number")
    return int(text)
