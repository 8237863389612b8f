"""Look-ups: a checked question in, a stored result or the reason why there is none out."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from tilewise.db.records import Dims, Question, Result
from tilewise.db.store import Store
from tilewise.errors import BadDimension, NotFound, UnknownKernel
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.problem import make_problem, nearest

__all__ = ["NotTuned", "answer", "check_question"]


class NotTuned(NotFound):
    """Nothing stored answers the question; `nearest` are the tuned shapes closest to it, nearest first."""

    def __init__(self, message: str, nearest: Sequence[Dims]) -> None:
        super().__init__(message)
        self.nearest = tuple(nearest)


def check_question(kernel: str, dims: Iterable[str], dtype: str) -> None:
    """Raise `BadDimension` or `UnknownDtype` where a registered kernel has no such dimensions or dtype.

    A kernel that is not registered may still be stored, from a user's file: that is for `answer` to find out.
    """
    if known := _registered(kernel):
        make_problem(known[0], dict.fromkeys(dims, 1), dtype)


def answer(store: Store, question: Question) -> Result:
    """The best result stored for exactly this question.

    A registered kernel answers only with results of the source that is installed here: those of another version of
    it are not exact. Raises `NotTuned`, or `UnknownKernel` where the kernel is neither registered nor stored.
    """
    known = _registered(question.kernel)
    result = store.lookup(question, source_hash=known[1] if known else None)
    if result is None:
        raise _miss(store, question, registered=known is not None)
    return result


def _registered(kernel: str) -> tuple[KernelSpec, str] | None:
    """A registered kernel's spec and source hash; None for any other name.

    `registry.load` also takes files, which a request must never make the server import.
    """
    return _load(kernel) if kernel in registry.names() else None


@functools.cache  # registered kernels do not change while the process lives
def _load(kernel: str) -> tuple[KernelSpec, str]:
    spec = registry.load(kernel)
    return spec, source_hash(spec)


def _miss(store: Store, question: Question, *, registered: bool) -> Exception:
    if not registered:
        stored = {frozenset(scope.dims) for scope in store.scopes(kernel=question.kernel)}
        if not stored:
            known = ", ".join(registry.names())
            return UnknownKernel(f"unknown kernel {_short(question.kernel)}; registered: {known}; no other is stored")
        if frozenset(question.dims) not in stored:
            expected = " or ".join(sorted(", ".join(sorted(names)) for names in stored))
            given = ", ".join(sorted(question.dims)) or "none"
            return BadDimension(f"{question.kernel} has the dimensions {expected}; given: {_short(given)}")
    shapes = store.shapes(question.kernel, question.dtype, question.device)
    problem = Problem(question.kernel, question.dims, question.dtype)
    close = nearest(problem, [dims for dims in shapes if dims != question.dims])
    asked = f"{question.kernel} {_shape(question.dims)} {_clip(question.dtype)}"
    return NotTuned(f"{asked} is not tuned for {_clip(question.device)}; {_hint(store, question, close)}", close)


def _hint(store: Store, question: Question, close: Sequence[Dims]) -> str:
    if store.lookup(question) is not None:
        return "a result is stored, but of another version of the kernel's source: tune it again"
    if close:
        return f"nearest tuned shapes: {'; '.join(map(_shape, close))}"
    devices = store.devices()
    if question.device in devices:
        return "no other shape of it is either"
    return f"devices with results: {', '.join(devices) or 'none yet'}"


def _shape(dims: Dims) -> str:
    return ",".join(f"{name}={size}" for name, size in dims.items())


def _clip(text: str) -> str:
    """Enough of what somebody sent to recognise it, on one line."""
    line = text if text.isprintable() else repr(text)[1:-1]
    return line if len(line) <= 60 else line[:57] + "..."


def _short(text: str) -> str:
    return f"'{_clip(text)}'"
