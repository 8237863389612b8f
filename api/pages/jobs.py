"""The pages of jobs: the list with a form for a new one, and a single job with its progress."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from tilewise.api.http.routing import service_of
from tilewise.api.pages.rendering import missing, page, refused
from tilewise.api.routes.jobs import job_number, placed_json
from tilewise.db.jobs import Job, State
from tilewise.db.records import shape_text
from tilewise.errors import NotFound
from tilewise.kernels import registry
from tilewise.tuner.devices.registry import DEFAULT_PART

__all__ = ["job", "jobs"]

_PAGE_SIZE = 50
_FILTERS = ("only", "of", "on")
"""Filters of the list by state, kernel and device; the form for a new job has fields of those names."""
_PREFERRED = ("npu", "cuda", f"model:{DEFAULT_PART}")
"""Devices that the form preselects, in the order of `--device auto`."""
SEARCHES = ("guided", "tpe", "random", "exhaustive", "retune")
_FIELDS = {"kernel": "row_reduce", "dims": "", "dtype": "float32", "device": "", "search": "guided"}
"""The form's fields and their defaults."""


async def jobs(request: Request) -> Response:
    """Show the newest jobs. The query may narrow the list to a state, and fill in the form's fields, as the link on a
    problem's page does."""
    service = service_of(request)
    filters = {name: request.query_params.get(name) or None for name in _FILTERS}
    if filters["only"] not in (None, *map(str, State)):
        return refused(f"only is {str(filters['only'])[:30]!r}; expected {', '.join(State)}")
    before = request.query_params.get("before", "")
    found = await service.run(
        service.jobs.page,
        before=int(before) if re.fullmatch("[0-9]{1,18}", before) else 2**63 - 1,
        most=_PAGE_SIZE,
        state=filters["only"],
        kernel=filters["of"],
        device=filters["on"],
    )
    given = {name: text for name, text in filters.items() if text}
    following = "/jobs?" + urlencode({**given, "before": found[-1].id}) if len(found) == _PAGE_SIZE else ""
    fields = {name: request.query_params.get(name, default) for name, default in _FIELDS.items()}
    devices = sorted(await service.run(service.devices))
    fields["device"] = fields["device"] or next((device for device in _PREFERRED if device in devices), "")
    return page(
        "jobs.html",
        here="jobs",
        jobs=[_shown(job) for job in found],
        filters=filters,
        states=[str(state) for state in State],
        live=not before,
        next=following,
        kernels=registry.names(),
        devices=devices,
        fields=fields,
        searches=SEARCHES,
        runs=service.options.run_jobs,
    )


async def job(request: Request) -> Response:
    """Show one job: its request, its progress, and the link to its results."""
    service = service_of(request)
    try:
        found = await service.run(service.jobs.get, job_number(request))
    except NotFound:
        return missing("There is no such job.")
    placed = await service.run(placed_json, service, found)
    return page("job.html", here="jobs", job=_shown(found) | {"waits": placed.get("waits", "")})


def _shown(job: Job) -> dict[str, Any]:
    progress = dict(job.progress)
    return {
        "id": job.id,
        "kernel": job.kernel,
        "shapes": [shape_text(dims) for dims in job.shapes] or ["all that are stale"],
        "count": progress.get("shapes", len(job.shapes)),
        "dtype": job.dtype,
        "device": job.device,
        "search": job.search,
        "trials": job.trials,
        "seconds": job.seconds,
        "priority": job.priority,
        "toolchain": job.toolchain,
        "fresh": job.fresh,
        "deadline": f"{job.deadline:%Y-%m-%d %H:%M:%S}" if job.deadline else "",
        "ran_on": f"{job.host} {job.lane}" if job.lane else "",
        "state": str(job.state),
        "final": job.state.is_final,
        "reason": job.reason,
        "attempts": job.attempts,
        "created": f"{job.created:%Y-%m-%d %H:%M:%S}",
        "done": progress.get("shapes_done", 0),
        "tried": progress.get("trials", 0),
        "of": progress.get("of"),
        "best_us": progress.get("best_us"),
        "clock": progress.get("clock", ""),
        "scope": progress.get("scope", ""),
        "failed": progress.get("failed", []),
        "flipped": [_flip_text(flip) for flip in progress.get("flipped", [])],
    }


def _flip_text(flip: Mapping[str, Any]) -> str:
    """Return a shape whose best is another one since a retune, with the cost of the former best."""
    cost = f"the former best takes {flip['cost']:.3f} times as long" if "cost" in flip else "the former best fails"
    return f"{shape_text(flip['dims'])}: {cost}"
