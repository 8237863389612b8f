"""Records of Helion's autotuner: a remote cache for it, by Helion's own keys."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from tilewise.api.http import schemas
from tilewise.api.http.routing import (
    DATABASE_FAILS,
    MISUSED,
    UNCHANGED,
    PlainRoute,
    documented,
    given,
    next_of,
    paged,
    service_of,
    tagged,
)
from tilewise.db.helion_records import HelionRecord, HelionRecords
from tilewise.errors import NotFound

__all__ = ["plain", "typed"]

plain = APIRouter(route_class=PlainRoute, tags=["helion"])
typed = APIRouter(tags=["helion"])

_FORM = "^[0-9a-f]{64}$"
_KEY = documented("key", "Helion's hash of all that the record depends on", where="path", required=True, pattern=_FORM)


@plain.get(
    "/v1/helion",
    summary="List records of Helion's autotuner, the newest first",
    response_model=schemas.HelionRecords,
    responses={200: {"links": {"next": next_of("helion_records", "before")}}, **UNCHANGED, **MISUSED, **DATABASE_FAILS},
    openapi_extra={
        "parameters": [
            documented("kernel", "only records of this kernel", minLength=1),
            documented("device", "only records of this hardware, as Helion calls it", minLength=1),
            documented("limit", "records per page", type="integer", minimum=1, maximum=200, default=50),
            documented("before", "`next` of the previous page", type="integer", minimum=1, maximum=2**63 - 1),
        ]
    },
)
async def helion_records(request: Request) -> Response:
    """Return one page of records, which no look-up answers from: they are Helion's, and nothing here verified them."""
    parameters, service = given(request), service_of(request)
    limit = parameters.take_number("limit", 50, least=1, most=200)
    before = parameters.take_number("before", 2**63 - 1, least=1, most=2**63 - 1)
    wanted = {name: parameters.take(name) for name in ("kernel", "device")}
    parameters.finish("kernel, device, limit or before")
    page = await service.run(HelionRecords(service.store.database).page, before=before, most=limit, **wanted)
    last = str(page[-1].id) if len(page) == limit else None
    return tagged(request, *paged(request, {"records": [_json(record) for record in page]}, "before", last))


@plain.get(
    "/v1/helion/{key}",
    summary="Show a record of Helion's autotuner",
    response_model=schemas.HelionRecord,
    responses={
        **UNCHANGED,
        404: {"model": schemas.Problem, "description": "There is no such record."},
        **DATABASE_FAILS,
    },
    openapi_extra={"parameters": [_KEY]},
)
async def helion_record(request: Request) -> Response:
    """Return a record as Helion wrote it."""
    key, service = request.path_params["key"], service_of(request)
    if not re.fullmatch(_FORM, key):  # PostgreSQL refuses some texts, which then look like a fault of the database
        raise NotFound("a record's key is 64 hexadecimal digits, so there is no such record")
    return tagged(request, _json(await service.run(HelionRecords(service.store.database).get, key)))


@typed.put(
    "/v1/helion/{key}",
    summary="Keep a record of Helion's autotuner",
    response_model=schemas.HelionRecord,
    responses={
        400: {"model": schemas.Problem, "description": "The body is no text in UTF-8."},
        413: {"model": schemas.Problem, "description": "The body is too large."},
        422: {
            "model": schemas.ValidationProblem,
            "description": "The key or the body does not match its schema, or the record is too large.",
        },
        **DATABASE_FAILS,
    },
)
async def keep_helion_record(
    request: Request,
    key: Annotated[str, Path(pattern=_FORM, description="Helion's hash of all that the record depends on")],
    body: schemas.HelionRecordRequest,
) -> Response:
    """Keep a record, in place of one of the same key. Of many, those written last are kept."""
    service = service_of(request)
    record = HelionRecord(key, body.kernel, body.device, body.record, body.search_us)
    await service.write(HelionRecords(service.writer.database).put, record)
    return tagged(request, _json(record))


def _json(record: HelionRecord) -> dict[str, Any]:
    known = {"kernel": record.kernel or None, "search_us": record.search_us}
    return {
        "key": record.key,
        "device": record.device,
        **{name: value for name, value in known.items() if value is not None},
        "stored": record.stored.isoformat(),
        "record": json.loads(record.text),
    }
