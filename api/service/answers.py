"""Look-ups for registered kernels, and for other kernels with stored results."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from tilewise.db.records import Dims, Problem, Question, Result, Shape
from tilewise.db.store import Store
from tilewise.errors import BadDimension, UnknownKernel
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.lookup.resolve import Match, clip, is_of, predicted, resolve_with_fallback
from tilewise.tuner.space.problem_checks import make_problem

if TYPE_CHECKING:
    from tilewise.db.sql.sql_store import SqlStore
    from tilewise.tuner.lookup.store_source import StoreSource

__all__ = ["Found", "LookupRequest", "exact", "prediction", "problem_of", "registered", "relaxed"]


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """A question, and how far its answer may relax."""

    question: Question
    match: Match = Match.EXACT
    toolchain: str | None = None


class Found(NamedTuple):
    """An answer as JSON, and how far it is relaxed."""

    match: str
    body: bytes


def problem_of(kernel: str, shape: Shape, dtype: str) -> Problem:
    """Return the problem of a shape, whose sizes are valid.

    Raises `BadDimension` or `UnknownDtype` if a registered kernel has no such dimensions, flags or dtype. Other kernels
    pass: results of a kernel from a user's file may be stored, which `answer` checks.
    """
    known = registered(kernel)
    if known is None:
        return Problem.of(kernel, shape, dtype)
    if any(type(value) is not int for value in shape.values()):
        return make_problem(known[0], shape, dtype)
    _check(kernel, tuple(shape), dtype)
    return Problem(kernel, cast("Dims", shape), dtype)


@functools.lru_cache(maxsize=1024)  # a check that raises is not kept
def _check(kernel: str, dims: tuple[str, ...], dtype: str) -> None:
    make_problem(_load(kernel)[0], dict.fromkeys(dims, 1), dtype)


def exact(store: SqlStore, kernel: str, question_key: str) -> bytes | None:
    """Return the encoded result stored for exactly this question about `kernel`, with one index seek.

    For a registered kernel, only results of the source installed here are exact, not those of another version.
    """
    known = registered(kernel)
    return store.encoded_result(question_key, source_hash=known[1] if known else None)


def relaxed(source: StoreSource, request: LookupRequest, furthest: Match) -> Result | None:
    """Return the answer that relaxes least, at most as far as the request and `furthest` allow.

    None means that a step beyond `furthest` may answer. This takes milliseconds for a neighbour, and up to seconds for
    a portfolio or a prediction. Raises `NotTuned`; `UnknownKernel` if the kernel is neither registered nor stored;
    `BadDimension` if it is stored with other dimensions.
    """
    question, known = request.question, registered(request.question.kernel)
    if known is None:
        return _stored(source, request)
    spec, source_hash = known
    within = request.match if furthest.allows(request.match) else furthest
    found = resolve_with_fallback(
        source, question, spec, source_hash=source_hash, match=within, toolchain=request.toolchain
    )
    if found is None and within is request.match:
        raise source.not_tuned(question)
    return found


def prediction(source: StoreSource, question: Question) -> Result | None:
    """Return the prior's answer, which depends on nothing stored but the device's core count."""
    known, target = registered(question.kernel), source.target(question.device)
    return predicted(question, *known, target) if known and target else None


def _stored(source: StoreSource, request: LookupRequest) -> Result:
    """Answer about a kernel that is not registered, whose results cannot be moved to other shapes."""
    found = source.answers(request.question, None)
    for result in found:
        if request.toolchain is None or is_of(result, request.toolchain):
            return result
    if found and request.match.allows(Match.OLDER):
        return dataclasses.replace(found[0], match=Match.OLDER.value)
    _check_stored(source.store, request.question)
    raise source.not_tuned(request.question)


def registered(kernel: str) -> tuple[KernelSpec, str] | None:
    """Return a registered kernel's spec and source hash; None for any other name.

    `registry.load` also takes files, which a request must never make the server import.
    """
    return _load(kernel) if registry.place(kernel) else None


@functools.cache  # registered kernels do not change while the process lives
def _load(kernel: str) -> tuple[KernelSpec, str]:
    spec = registry.load(kernel)
    return spec, source_hash(spec)


def _check_stored(store: Store, question: Question) -> None:
    """Raise `UnknownKernel` or `BadDimension` if no stored result of an unregistered kernel could answer."""
    stored = {frozenset(scope.dims) for scope in store.scopes(kernel=question.kernel)}
    if not stored:
        known = registry.known(question.kernel)
        raise UnknownKernel(f"unknown kernel '{clip(question.kernel)}'; {known}; no other kernel has stored results")
    if frozenset(question.dims) not in stored:
        expected = " or ".join(sorted(", ".join(sorted(names)) for names in stored))
        given = ", ".join(sorted(question.dims)) or "none"
        raise BadDimension(f"{question.kernel} has the dimensions {expected}; given: '{clip(given)}'")
