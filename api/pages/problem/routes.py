"""The routes of one problem: its page, the trials behind the page's charts and table, and what explains its winner."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tilewise.api.http.auth import caller_of
from tilewise.api.http.routing import respond, service_of, while_connected
from tilewise.api.pages.problem.comparison import comparison
from tilewise.api.pages.problem.explanation import explanation
from tilewise.api.pages.problem.landscapes import Landscapes, Stored
from tilewise.api.pages.problem.lineage import lineage
from tilewise.api.pages.problem.trial_table import PAGE_SIZE, TrialQuery, csv_lines
from tilewise.api.pages.problem.views import problem_view
from tilewise.api.pages.rendering import missing, page, refused
from tilewise.api.service.answer_cache import Answer
from tilewise.api.service.answers import registered
from tilewise.db.records import Clock, Scope, Trial, shape_text
from tilewise.errors import NotFound, UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.explain.report import Report, unexplained_reason
from tilewise.tuner.space.problem_checks import config_text, make_problem

if TYPE_CHECKING:
    from tilewise.db.sql.sql_store import SqlStore

__all__ = ["ROUTES"]

_CHOICES = 20
"""The fastest trials, which can be chosen for a comparison; any other is reached from the table."""

_FOR_MINUTES = {"Cache-Control": "max-age=600"}

_landscapes = Landscapes()


def _of_problem(show: Callable[[Request, Stored], Response]) -> Callable[[Request], Response]:
    """Return a function that shows a stored problem by its key, or a page that says that there is none."""

    def shown(request: Request) -> Response:
        store = _store(request)
        scope = store.scope(request.path_params["key"])
        if scope is None:
            return missing("There is no such problem; it may have been tuned with another database.")
        try:
            return show(request, _landscapes.of(store, scope))
        except UsageError as error:
            return refused(str(error))

    return shown


async def problem(request: Request) -> Response:
    """Show one problem on one device and toolchain: its winner, why it won, and all its trials."""
    return await service_of(request).run(_problem, request)


@_of_problem
def _problem(request: Request, stored: Stored) -> Response:
    scope = stored.result.scope
    chosen = request.query_params.get("across"), request.query_params.get("down")
    axes = cast(tuple[str, str], chosen) if all(chosen) else None
    if axes and axes[0] == axes[1]:
        raise UsageError(f"across and down are both {axes[0][:30]!r}; expected two different parameters")
    query = TrialQuery.of(request.query_params)
    try:
        view = problem_view(stored, _spec(scope), str(request.base_url), axes, query)
    except KeyError as error:
        return missing(f"No trial of this problem has a parameter {error}.")
    winner = view.result.winner
    reason = unexplained_reason(scope) if winner else "nothing won"
    known = service_of(request).explanations.known(scope, winner) if winner and not reason else None
    return page(
        "problem.html",
        here="",
        view=view,
        path=f"/problems/{scope.key}",
        page_size=PAGE_SIZE,
        explained=explanation(known) if isinstance(known, Report) else None,
        unexplained=known if isinstance(known, str) else reason,
        relatives=lineage(_store(request), stored.result),
        tune_again="/jobs?" + urlencode(_problem_of(scope)) if scope.kernel in registry.names() else "",
    )


async def compare(request: Request) -> Response:
    """Show two trials side by side: by default the winner and the default."""
    return await service_of(request).run(_compare, request)


@_of_problem
def _compare(request: Request, stored: Stored) -> Response:
    scope, landscape = stored.result.scope, stored.landscape
    one = _trial_number(request, "a", stored.reference, len(landscape))
    other = _trial_number(request, "b", stored.default if stored.default != one else None, len(landscape))
    pair = [(number, _store(request).trial(scope, landscape.config(number))) for number in (one, other)]
    known = [(number, trial) for number, trial in pair if trial is not None]
    if len(known) < 2:
        return missing("One of these trials was replaced just now.")
    by_time = sorted(landscape.timed(), key=lambda timed: timed[1])
    near = dict.fromkeys([one, other, *(trial for trial, _ in by_time[:_CHOICES])])
    return page(
        "compare.html",
        here="",
        scope=scope,
        sizes=shape_text(scope.shape),
        path=f"/problems/{scope.key}",
        view=comparison(scope, _spec(scope), *known),
        choices=[(trial, _choice(stored, trial)) for trial in near],
    )


def _trial_number(request: Request, name: str, otherwise: int | None, count: int) -> int:
    text = request.query_params.get(name)
    number = otherwise if text is None else int(text) if re.fullmatch("[0-9]{1,9}", text) else None
    if number is None or number >= count:
        raise UsageError(
            f"{name} is {(text or 'missing')[:30]!r}; expected the number of a trial, from 0 to {count - 1}"
        )
    return number


def _choice(stored: Stored, trial: int) -> str:
    time_us = stored.landscape.times_us[trial]
    kind = {stored.winner: "winner, ", stored.default: "default, "}.get(trial, "")
    shown = stored.landscape.statuses[trial] if time_us is None else f"{time_us:.2f} us"
    return f"{kind}{shown}: {config_text(stored.landscape.config(trial))}"


async def trials(request: Request) -> Response:
    """Return all trials as columns, for the page's charts."""
    return await service_of(request).run(_trials, request)


@_of_problem
def _trials(request: Request, stored: Stored) -> Response:
    return respond(request, Answer.of(stored.encoded))


async def table(request: Request) -> Response:
    """Return the trials of the page's table as CSV."""
    return await service_of(request).run(_table, request)


@_of_problem
def _table(request: Request, stored: Stored) -> Response:
    query = TrialQuery.of(request.query_params)
    name = f"{stored.result.scope.key[:12]}-trials.csv"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    lines = csv_lines(stored.landscape, query)
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)


def _problem_of(scope: Scope) -> dict[str, str]:
    """Return the form fields of a new job for this scope."""
    modelled = scope.clock is Clock.MODELLED
    return {
        "kernel": scope.kernel,
        "dims": shape_text(scope.shape),
        "dtype": scope.dtype,
        "device": f"model:{scope.device}" if modelled else "",
    }


async def explain(request: Request) -> Response:
    """Show all that the compiler and the model of a part say of a winner. It is computed once."""
    scope, report = await _reported(request)
    return page(
        "explain.html",
        here="",
        scope=scope,
        sizes=shape_text(scope.shape),
        path=f"/problems/{scope.key}",
        explained=explanation(report),
    )


async def timeline(request: Request) -> Response:
    """Draw the course of one program of a modelled winner."""
    _, report = await _reported(request)
    return Response(report.timeline, media_type="image/svg+xml", headers=_FOR_MINUTES)


async def trace(request: Request) -> Response:
    """Return the course of one program of a modelled winner, in the form that Perfetto reads."""
    scope, report = await _reported(request)
    if not report.trace:
        raise NotFound("the trace of this winner is too long for a browser; write it with tilewise explain --trace")
    name = f"{scope.kernel}-{scope.key[:12]}-trace.json"
    headers = {"content-disposition": f'attachment; filename="{name}"', **_FOR_MINUTES}
    return Response(report.trace, media_type="application/json", headers=headers)


async def _reported(request: Request) -> tuple[Scope, Report]:
    """Return the problem in the path with the report on its winner. Raises `NotFound`, and `Busy` if too many wait."""
    service = service_of(request)
    scope, winner = await service.run(_winner, request)
    return scope, await while_connected(request, service.explain(caller_of(request), scope, winner))


def _winner(request: Request) -> tuple[Scope, Trial]:
    store = _store(request)
    scope = store.scope(request.path_params["key"])
    winner = store.result(scope).winner if scope else None
    if scope is None or winner is None:
        raise NotFound("there is no such problem, or none of its configs is verified")
    if reason := unexplained_reason(scope):
        raise NotFound(f"the winner cannot be explained: {reason}")
    return scope, winner


def _store(request: Request) -> SqlStore:
    return service_of(request).store


def _spec(scope: Scope) -> KernelSpec | None:
    """Return the kernel's spec; None if the problem is not one of its own, as that of a replayed recording."""
    known = registered(scope.kernel)
    if known is None:
        return None
    try:
        make_problem(known[0], scope.shape, scope.dtype)
    except UsageError:
        return None
    return known[0]


ROUTES: list[BaseRoute] = [
    Route("/problems/{key}", problem),
    Route("/problems/{key}/compare", compare),
    Route("/problems/{key}/trials.json", trials),
    Route("/problems/{key}/trials.csv", table),
    Route("/problems/{key}/explain", explain),
    Route("/problems/{key}/timeline.svg", timeline),
    Route("/problems/{key}/trace.json", trace),
]
