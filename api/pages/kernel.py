"""A kernel's overview: its tuned shapes by speed-up, what is stale or waits, and what further shapes may gain."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from tilewise.api.http.routing import service_of
from tilewise.api.pages.problem.lineage import newest_toolchains, staleness
from tilewise.api.pages.rendering import missing, page
from tilewise.db.jobs import Jobs, State
from tilewise.db.records import Clock, Problem, Result, Status, shape_text
from tilewise.db.store import Store, Wanted
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.tuner.space.problem_checks import parse_dims, shape_distance

__all__ = ["Entry", "Gain", "gains", "kernel", "overview"]

_MOST = 300
"""Problems on the page, those written to last."""
_MOST_JOBS = 50
_MOST_SHAPES = 100
_LONGEST = 10_000
_SHADES = ((2.0, 0), (1.5, 2), (1.25, 4), (1.1, 6), (1.02, 8))
"""The least speed-up of each shade; the style sheet has one class per shade, 0 the darkest."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tuned problem. `state` is `current`, `not verified`, `failed`, or says why it is stale."""

    result: Result
    shape: str
    state: str

    @property
    def shade(self) -> int | None:
        speed_up = self.result.speed_up or 0.0
        return next((shade for least, shade in _SHADES if speed_up >= least), None)


@dataclass(frozen=True, slots=True)
class Gain:
    """A shape, and the gain to expect of tuning it.

    `here` is its own result if it is tuned. `near` is the nearest tuned shape, whose speed-up over its default is the
    best guess.
    """

    shape: str
    here: Result | None
    near: Result | None
    distance: float | None


async def kernel(request: Request) -> Response:
    """Show a kernel's tuned shapes. The query may name a device, a dtype, and shapes to be tuned."""
    service = service_of(request)
    return await service.run(_kernel, request, service.store, service.jobs)


def _kernel(request: Request, store: Store, jobs: Jobs) -> Response:
    name = request.path_params["kernel"]
    given = {key: request.query_params.get(key, "").strip() for key in ("device", "dtype", "shapes")}
    wanted = Wanted(kernel=name, device=given["device"] or None, dtype=given["dtype"] or None)
    entries = overview([result for _, result in store.results(wanted, most=_MOST)])
    if not entries and name not in registry.names() and name not in store.kernels():
        return missing(f"No kernel {name[:60]!r} is registered or has results.")
    fault, asked = "", list[Gain]()
    try:
        asked = gains([entry.result for entry in entries], _shapes(given["shapes"]))
    except UsageError as error:
        fault = str(error)
    untuned = [gain for gain in asked if gain.here is None]
    return page(
        "kernel.html",
        here="",
        name=name,
        given=given,
        entries=entries,
        counts=Counter("stale" if entry.state.startswith("of ") else entry.state for entry in entries),
        cut=len(entries) if len(entries) >= _MOST else 0,
        devices=sorted({entry.result.scope.device for entry in entries} | {given["device"]} - {""}),
        dtypes=sorted({entry.result.scope.dtype for entry in entries} | {given["dtype"]} - {""}),
        waiting=_waiting(jobs, name),
        gains=asked,
        expected=_expected(untuned),
        tune="/jobs?" + urlencode(_job(name, [gain.shape for gain in untuned], untuned)) if untuned else "",
        retune="/jobs?" + urlencode({"kernel": name, "search": "retune"}) if name in registry.names() else "",
        fault=fault,
        status=400 if fault else 200,
    )


def overview(results: Sequence[Result]) -> list[Entry]:
    """Return the newest result of each problem per device and clock, with the largest speed-up first."""
    newest: dict[tuple[str, str, str, str], Result] = {}
    for result in results:
        scope = result.scope
        key = shape_text(scope.shape), scope.dtype, scope.device, str(scope.clock)
        if key not in newest or _created(result) > _created(newest[key]):
            newest[key] = result
    toolchains = newest_toolchains(results)
    entries = [Entry(result, key[0], _state(result, toolchains)) for key, result in newest.items()]
    return sorted(entries, key=lambda entry: -(entry.result.speed_up or 0.0))


def gains(results: Iterable[Result], shapes: Sequence[Mapping[str, int | bool | str]]) -> list[Gain]:
    """Return what each shape has, or what its nearest tuned one gained. A shape with other names has no nearest one."""
    verified = [result for result in results if result.winner]
    found = []
    for shape in shapes:
        problem = Problem.of("", shape, "")
        alike = [
            (shape_distance(problem.dims, result.scope.dims), result)
            for result in verified
            if result.scope.dims.keys() == problem.dims.keys() and dict(result.scope.problem.flags) == problem.flags
        ]
        distance, near = min(alike, key=lambda pair: pair[0], default=(None, None))
        here = near if distance == 0 else None
        found.append(Gain(shape_text(shape), here, near, distance))
    return found


def _state(result: Result, toolchains: Mapping[tuple[str, str], str]) -> str:
    if result.winner is None:
        return "not verified" if result.counts.get(Status.CORRECT) else "failed"
    return staleness(result, toolchains) or "current"


def _created(result: Result) -> float:
    return result.winner.created.timestamp() if result.winner else 0.0


def _shapes(text: str) -> list[dict[str, int | bool | str]]:
    """Read shapes, one a line or between semicolons. Raises `UsageError`."""
    if len(text) > _LONGEST:
        raise UsageError(f"the shapes have {len(text)} characters; expected at most {_LONGEST}")
    found = [parse_dims(line.strip()) for line in text.replace(";", "\n").splitlines() if line.strip()]
    if len(found) > _MOST_SHAPES:
        raise UsageError(f"{len(found)} shapes are given; expected at most {_MOST_SHAPES}")
    for shape in found:
        if any(type(size) is int and size < 1 for size in shape.values()):
            raise UsageError(f"the shape is {shape_text(shape)!r}; expected sizes of 1 or more")
    return found


def _expected(untuned: Sequence[Gain]) -> tuple[float, float, float] | None:
    """Return the lowest, middle and highest speed-up that the nearest tuned shapes gained."""
    known = sorted(gain.near.speed_up for gain in untuned if gain.near is not None and gain.near.speed_up)
    return (known[0], statistics.median(known), known[-1]) if known else None


def _job(name: str, shapes: Sequence[str], untuned: Sequence[Gain]) -> dict[str, str]:
    """Return the form fields of a job for these shapes, on the device of the nearest tuned ones."""
    fields = {"kernel": name, "dims": "; ".join(shapes)}
    near = next((gain.near.scope for gain in untuned if gain.near is not None), None)
    if near is None:
        return fields
    device = {"device": f"model:{near.device}"} if near.clock is Clock.MODELLED else {}
    return fields | {"dtype": near.dtype} | device


def _waiting(jobs: Jobs, name: str) -> list[tuple[int, str, str]]:
    """Return the shapes of unfinished jobs, with the job's number and device."""
    found = [
        job for state in (State.RUNNING, State.QUEUED) for job in jobs.page(state=state, kernel=name, most=_MOST_JOBS)
    ]
    return [(job.id, shape_text(shape), job.device) for job in found for shape in job.shapes]
