"""HTTP statuses of errors, and the types of their problem documents (RFC 9457): the only place that maps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from tilewise.errors import (
    Busy,
    Forbidden,
    LeaseLost,
    NoSpace,
    NotFound,
    NothingFeasible,
    ReadOnly,
    StoreError,
    TilewiseError,
    Unauthorized,
    Unavailable,
    UnknownKernel,
    UsageError,
)
from tilewise.tuner.lookup.resolve import NotTuned

__all__ = ["entry_of", "faults_of", "type_of"]

_STATUS: Mapping[type[TilewiseError], tuple[int, str]] = {
    NotTuned: (404, "not-tuned"),
    NotFound: (404, "not-found"),
    UnknownKernel: (404, "unknown-kernel"),
    Busy: (429, "busy"),
    Unauthorized: (401, "unauthorized"),
    Forbidden: (403, "forbidden"),
    UsageError: (400, "bad-request"),
    NothingFeasible: (422, "nothing-feasible"),
    Unavailable: (503, "unavailable"),
    LeaseLost: (409, "lease-lost"),
    NoSpace: (507, "no-space"),
    ReadOnly: (503, "read-only"),
    StoreError: (503, "database"),
    TilewiseError: (500, "failed"),
}
"""HTTP status and last part of the problem's `type`; the first class listed here in an error's MRO counts."""


def entry_of(error: TilewiseError) -> tuple[int, str]:
    """Return an error's HTTP status and the last part of its problem's `type`."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def type_of(error: TilewiseError) -> str:
    """Return the `type` of an error's problem document."""
    return f"urn:tilewise:problem:{entry_of(error)[1]}"


def faults_of(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return Pydantic's errors about a body as faults, each with a JSON pointer to its place."""
    return [{"pointer": _pointer(error), "detail": error["msg"]} for error in errors]


def _pointer(error: Mapping[str, Any]) -> str:
    """Return an error's JSON pointer (RFC 6901) as a URI fragment.

    `("body", "queries", 0, "dims")` gives `#/queries/0/dims`.
    """
    path = () if error["type"] == "json_invalid" else error["loc"][1:]  # for invalid JSON, `loc` is an offset
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return "#" + "".join(f"/{quote(part, errors='replace')}" for part in parts)
