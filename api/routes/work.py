"""Operations of workers without a database, which the server carries out on its queue and store."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from sqlalchemy.exc import IntegrityError
from starlette.responses import JSONResponse, Response

from tilewise.api.http import schemas
from tilewise.api.http.routing import DATABASE_FAILS, MISUSED, service_of
from tilewise.api.jobs.operations import OPERATIONS, Operation
from tilewise.api.service.service import Service
from tilewise.db.queue import Lease
from tilewise.db.signed_kernels import SignedKernels
from tilewise.db.sql.leased_store import Repeated
from tilewise.db.workers import Workers
from tilewise.errors import NotFound, StoreError, UsageError

__all__ = ["typed"]

typed = APIRouter(tags=["workers"])


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
    do = service.write if called.writes else service.run
    return JSONResponse({"result": await do(_carry_out, service, called, body)})


def _carry_out(service: Service, operation: Operation, body: schemas.WorkRequest) -> Any:
    arguments = operation.from_json(body.arguments)
    target = _target(service, operation, body)
    try:
        return operation.result_to_json(getattr(target, operation.method)(**arguments))
    except Repeated:
        return 0 if operation.returns is int else None
    except StoreError as error:
        if isinstance(error.__cause__, IntegrityError):
            raise UsageError("the database refused it as impossible; nothing was written") from error
        raise


def _target(service: Service, operation: Operation, body: schemas.WorkRequest) -> object:
    if operation.leased:
        if body.lease is None or body.number is None:
            raise UsageError(f"{operation.name} needs the lease of a job, and a number that rises with each write")
        lease = Lease(body.lease["job"], body.lease["owner"], body.lease["number"])
        return service.jobs_writer.store(service.writer, lease, body.number)
    store = service.writer if operation.writes else service.store
    match operation.part:
        case "jobs":
            return service.jobs_writer if operation.writes else service.jobs
        case "workers":
            return Workers(store.database)
        case "kernels":
            return SignedKernels(store.database)
    return store
