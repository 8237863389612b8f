"""Operations of workers without a database, which the server carries out on its queue and store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import IntegrityError
from starlette.responses import JSONResponse, Response

from tilewise.api.http import schemas
from tilewise.api.http.auth import token_of
from tilewise.api.http.routing import DATABASE_FAILS, MISUSED, service_of
from tilewise.api.jobs.operations import OPERATIONS, Operation
from tilewise.api.jobs.work_bounds import WorkBounds
from tilewise.api.service.service import Service
from tilewise.db.queue import Lease
from tilewise.db.signed_kernels import SignedKernels
from tilewise.db.sql.leased_store import Repeated
from tilewise.db.workers import Workers
from tilewise.errors import NotFound, StoreError, Unauthorized, UsageError

__all__ = ["typed"]

typed = APIRouter(tags=["workers"])

_PROGRESS = TypeAdapter(schemas.Progress)


@typed.post(
    "/v1/work/{operation}",
    summary="Carry out an operation of a worker",
    response_model=schemas.WorkDone,
    responses={
        **MISUSED,
        404: {"model": schemas.Problem, "description": "There is no such operation, job or trial."},
        409: {"model": schemas.Problem, "description": "The job is no longer that of the lease; nothing was written."},
        413: {"model": schemas.Problem, "description": "The body is too large."},
        422: {
            "model": schemas.ValidationProblem,
            "description": "The body is not valid JSON or does not match its schema.",
        },
        **DATABASE_FAILS,
    },
)
async def work(
    request: Request,
    operation: Annotated[
        str, Path(description="a method of the queue or the store", json_schema_extra={"enum": sorted(OPERATIONS)})
    ],
    body: schemas.WorkRequest,
) -> Response:
    """Carry out what `tilewise worker --server` asks for, and return its `result`. A write to the store is for the job
    of a lease. If one of its number or a later one was stored under that lease, it succeeds and writes nothing."""
    if operation not in OPERATIONS:
        raise NotFound("there is no such operation; /openapi.json lists all")
    service, called = service_of(request), OPERATIONS[operation]
    holder = await service.read(service.tokens.check, token_of(request.scope))
    if holder is None:
        raise Unauthorized("this token is unknown or revoked")
    bounds = WorkBounds(holder[0], service.jobs, Workers(service.store.database), service.seen_by_work)
    do = service.write if called.writes else service.run
    with service.limits.work.one(holder[0]):
        return JSONResponse({"result": await do(_carry_out, service, called, body, bounds)})


def _carry_out(service: Service, operation: Operation, body: schemas.WorkRequest, bounds: WorkBounds) -> Any:
    arguments = bounds.bound(operation.name, operation.from_json(body.arguments))
    if arguments is not None and "progress" in arguments:
        arguments = arguments | {"progress": _checked(arguments["progress"])}
    if arguments is None:
        return False if operation.returns is bool else None
    target = _target(service, operation, body, bounds, arguments)
    try:
        return operation.result_to_json(bounds.shown(getattr(target, operation.method)(**arguments)))
    except Repeated:
        return 0 if operation.returns is int else None
    except StoreError as error:
        if isinstance(error.__cause__, IntegrityError):
            raise UsageError("the database refused it as impossible; nothing was written") from error
        raise


def _checked(progress: Mapping[str, Any]) -> schemas.Progress:
    """Return what is known of a job's progress: pages and listings show it."""
    try:
        return _PROGRESS.validate_python(progress)
    except ValidationError as error:
        first = error.errors()[0]
        place = "/".join(map(str, first["loc"]))
        raise UsageError(f"the progress is of another version: {place}: {first['msg']}") from error


def _target(
    service: Service,
    operation: Operation,
    body: schemas.WorkRequest,
    bounds: WorkBounds,
    arguments: Mapping[str, Any],
) -> object:
    if operation.leased:
        if body.lease is None or body.number is None:
            raise UsageError(f"{operation.name} needs the lease of a job, and a number that rises with each write")
        lease = bounds.stored(Lease(body.lease["job"], body.lease["owner"], body.lease["number"]))
        bounds.check_scope(lease, arguments["scope"])
        return service.jobs_writer.store(service.writer, lease, number=body.number)
    store = service.writer if operation.writes else service.store
    match operation.part:
        case "jobs":
            return service.jobs_writer if operation.writes else service.jobs
        case "workers":
            return Workers(store.database)
        case "kernels":
            return SignedKernels(store.database)
    return store
