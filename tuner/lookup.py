"""Look-ups: a question in, the stored result or the reason why there is none out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewise.db.records import Dims, Question, Result
from tilewise.db.store import Store
from tilewise.errors import NotFound
from tilewise.kernels.spec import Problem
from tilewise.tuner.problem import nearest, sizes_text

__all__ = ["NotTuned", "answer", "clip", "miss"]


class NotTuned(NotFound):
    """Nothing stored answers the question; `nearest` are the tuned shapes closest to it, nearest first."""

    def __init__(self, message: str, nearest: Sequence[Dims]) -> None:
        super().__init__(message)
        self.nearest = tuple(nearest)


def answer(store: Store, question: Question, *, source_hash: str | None) -> Result:
    """The best result stored for exactly this question and, where it is given, this source of the kernel.

    Raises `NotTuned`, whose message says what is nearest.
    """
    result = store.lookup(question, source_hash=source_hash)
    if result is not None:
        return result
    shapes = store.shapes(question.kernel, question.dtype, question.device)
    problem = Problem(question.kernel, question.dims, question.dtype)
    close = nearest(problem, [dims for dims in shapes if dims != question.dims])
    asked = f"{clip(question.kernel)} {sizes_text(question.dims)} {clip(question.dtype)}"
    raise NotTuned(f"{asked} is not tuned for {clip(question.device)}; {_hint(store, question, close)}", close)


def miss(question: Question, why: str) -> dict[str, Any]:
    """The result object of a question without an answer."""
    return {**dataclasses.asdict(question), "match": "exact", "config": None, "why": why}


def clip(text: str) -> str:
    """Enough of what somebody sent to recognise it, on one line."""
    line = text if text.isprintable() else repr(text)[1:-1]
    return line if len(line) <= 60 else line[:57] + "..."


def _hint(store: Store, question: Question, close: Sequence[Dims]) -> str:
    if store.lookup(question) is not None:
        return "a result is stored, but of another version of the kernel's source: tune it again"
    if close:
        return f"nearest tuned shapes: {'; '.join(map(sizes_text, close))}"
    devices = store.devices()
    if question.device in devices:
        return "no other shape of it is either"
    return f"devices with results: {', '.join(devices) or 'none yet'}"
