"""Look-ups for registered kernels, and for other kernels with stored results."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, cast

from tilewise.db.records import Dims, Problem, Question, Result, Shape
from tilewise.db.store import Store
from tilewise.errors import BadDimension, UnknownKernel
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.lookup.resolve import Match, clip, is_of, resolve_or_raise
from tilewise.tuner.space.problem_checks import make_problem

if TYPE_CHECKING:
    from tilewise.db.sql.sql_store import SqlStore
    from tilewise.tuner.lookup.store_source import StoreSource

__all__ = ["answer", "exact", "problem_of", "registered"]


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


def answer(source: StoreSource, question: Question, match: Match, toolchain: str | None) -> Result:
    """Return the answer that relaxes least, no further than `match`.

    This takes milliseconds for a neighbour, and seconds when a kernel's shapes or portfolio are first needed. Raises
    `NotTuned`; `UnknownKernel` if the kernel is neither registered nor stored; `BadDimension` if it is stored with
    other dimensions.
    """
    known = registered(question.kernel)
    if known is not None:
        return resolve_or_raise(source, question, known[0], source_hash=known[1], match=match, toolchain=toolchain)
    found = source.answers(question, None)
    for result in found:
        if toolchain is None or is_of(result, toolchain):
            return result
    if found and match.allows(Match.OLDER):
        return dataclasses.replace(found[0], match=Match.OLDER.value)
    _check_stored(source.store, question)
    raise source.not_tuned(question)


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
