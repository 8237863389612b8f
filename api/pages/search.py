"""Search over problems, kernels, devices, jobs and pages, from a few words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from tilewise.api.http.routing import service_of
from tilewise.api.pages.rendering import page
from tilewise.db.records import Result, Shape, shape_text
from tilewise.db.store import Store, Wanted
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.tuner.space.problem_checks import parse_dims

__all__ = ["Hit", "found", "search"]

_LONGEST = 200
_MOST = 8
"""Hits of each kind."""
_MOST_NAMES = 3
"""Kernels and devices of a search whose problems are read, each pair by a query of its own."""

_PAGES = {
    "Problems": "/",
    "Jobs": "/jobs",
    "API": "/docs",
    "OpenAPI document": "/openapi.json",
    "Metrics": "/metrics",
}
_KEY = re.compile("[0-9a-f]{64}")
_DTYPE = re.compile(r"(b?float|u?int)\d+\w*")


@dataclass(frozen=True, slots=True)
class Hit:
    """Something found: its kind, its name, more words about it, and its address."""

    kind: str
    name: str
    about: str
    address: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """The words of a search by their use: sizes, a dtype, and the words that names have to hold."""

    dims: Shape
    dtype: str | None
    words: Sequence[str]


async def search(request: Request) -> Response:
    """Show what the words of `q` find. The script behind Ctrl-K shows the same list."""
    text, service = request.query_params.get("q", "").strip()[:_LONGEST], service_of(request)
    fault, hits = "", list[Hit]()
    try:
        hits = await service.run(found, service.store, text)
    except UsageError as error:
        fault = str(error)
    return page("search.html", here="search", text=text, hits=hits, fault=fault, status=400 if fault else 200)


def found(store: Store, text: str) -> list[Hit]:
    """Return the hits of a search, at most a few of each kind. Raises `UsageError` for bad sizes."""
    if _KEY.fullmatch(text):
        scope = store.scope(text)
        return [_problem(store.result(scope))] if scope else []
    if re.fullmatch("#[0-9]{1,18}", text):
        return [Hit("job", f"Job {text[1:]}", "", f"/jobs/{text[1:]}")]
    asked = _asked(text)
    tuned, devices = store.kernels(), store.devices()
    kernels = sorted({*registry.names(), *tuned})
    # Each word has to be in the name of the kernel or of the device.
    of_kernel = [word for word in asked.words if any(word in name.lower() for name in kernels)]
    of_device = [word for word in asked.words if word not in of_kernel]
    kernels, devices = _named(kernels, of_kernel), _named(devices, of_device)
    hits = [Hit("page", name, "", address) for name, address in _PAGES.items() if _holds(name, asked.words)]
    if not text:
        return hits
    hits = hits if asked.words else []
    if of_kernel and not of_device:
        hits += [Hit("kernel", name, "its shapes by speed-up", f"/kernels/{quote(name)}") for name in kernels[:_MOST]]
    only_devices = bool(asked.words) and not of_kernel
    if only_devices:
        hits += [Hit("device", name, "its problems", "/?" + urlencode({"device": name})) for name in devices[:_MOST]]
    chosen_kernels = [name for name in kernels if name in tuned][:_MOST_NAMES] if of_kernel else [None]
    chosen_devices = devices[:_MOST_NAMES] if of_device else [None]
    results = (
        result
        for kernel, device in itertools.product(chosen_kernels, chosen_devices)
        for _, result in store.results(Wanted(kernel, asked.dtype, device, asked.dims), most=_MOST)
    )
    return hits + [_problem(result) for result in itertools.islice(results, _MOST)]


def _asked(text: str) -> _Asked:
    words = text.split()
    sizes = ",".join(word.strip(",") for word in words if "=" in word)
    dtypes = [word for word in words if _DTYPE.fullmatch(word)]
    others = [word.lower() for word in words if "=" not in word and word not in dtypes[:1]]
    return _Asked(parse_dims(sizes) if sizes else {}, dtypes[0] if dtypes else None, others)


def _named(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the names that hold all words, the shortest first: the one that is meant is seldom a longer one."""
    return sorted((name for name in names if _holds(name, words)), key=len)


def _holds(name: str, words: Sequence[str]) -> bool:
    return all(word in name.lower() for word in words)


def _problem(result: Result) -> Hit:
    scope, winner = result.scope, result.winner
    time = f"{winner.time_us:.2f} us {scope.clock}" if winner and winner.time_us else "not verified"
    about = f"{scope.dtype}, {scope.device}, {time}"
    return Hit("problem", f"{scope.kernel} {shape_text(scope.shape)}", about, f"/problems/{scope.key}")
