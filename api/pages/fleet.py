"""The page of the fleet: its chips, the queue, and how long it will take."""

from __future__ import annotations

from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from tilewise.api.http.routing import service_of
from tilewise.api.jobs.overview import overview, trials_left
from tilewise.api.pages.rendering import page
from tilewise.api.service.service import Service
from tilewise.db.activity import trials_a_minute

__all__ = ["fleet"]


async def fleet(request: Request) -> Response:
    """Show the chips of all workers, with the job on each, and the queue."""
    service = service_of(request)
    return await service.run(_page, service)


def _page(service: Service) -> Response:
    seen, rate = overview(service.jobs, service.fleet), trials_a_minute(service.store.database)
    left = trials_left(service.jobs)
    return page(
        "fleet.html",
        here="fleet",
        chips=sorted(seen.chips, key=lambda chip: (chip.host, chip.id)),
        states=seen.by_state,
        jobs={state: count for state, count in seen.jobs.items() if count},
        queue=sorted(seen.queue.items()),
        rate=rate,
        left=left,
        time_left=_time_left(left, rate),
    )


def _time_left(trials: int, a_minute: float) -> str:
    """Return how long these trials take at this rate, such as "at most 1:30:00"; empty where nothing tells."""
    if not trials or not a_minute:
        return ""
    return f"at most {timedelta(seconds=round(60 * trials / a_minute))}"
