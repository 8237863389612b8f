"""A file of the shapes that were launched without a tuned config, to be tuned next.

It is an append-only file of JSON lines, one per shape and process. Any number of processes may add to it at once, and a
line that a crash cut short is skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tilewise.db.exchange.typed import Shape, typed
from tilewise.db.records import Problem, Question, canonical_json
from tilewise.errors import StoreError

__all__ = ["UntunedShape", "UntunedShapes"]

_TUNED = "tuned"
"""Written as `match` once the shape is tuned."""

_LIMIT_BYTES = 16 << 20
"""Size of the file, some 80,000 shapes, beyond which nothing is added."""


class _Line(msgspec.Struct):
    """A line of the file."""

    kernel: str
    dims: Shape
    dtype: str
    device: str
    match: str
    origin: str


@dataclass(frozen=True, slots=True)
class UntunedShape:
    """A shape whose config was guessed: by which `match`, and in how many processes. `origin` locates the spec."""

    question: Question
    origin: str
    match: str
    processes: int

    def to_json(self) -> dict[str, Any]:
        return {**self.question.to_json(), "match": self.match, "processes": self.processes, "origin": self.origin}


class UntunedShapes:
    """The file at `path`, which need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, question: Question, origin: str, match: str) -> None:
        """Append a shape. Raises `StoreError` if the file cannot be written."""
        text = canonical_json({**question.to_json(), "match": match, "origin": origin}) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as file:
                if file.tell() < _LIMIT_BYTES:
                    file.write(text.encode())  # a single append, so that lines of several processes do not mix
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}; check its permissions") from error

    def forget(self, question: Question) -> None:
        """Record that a shape is tuned now. Raises `StoreError` if the file cannot be written."""
        self.add(question, "", _TUNED)

    def all(self) -> list[UntunedShape]:
        """Return each untuned shape once, ordered by the number of processes that met it, largest first.

        Raises `StoreError` if the file cannot be read.
        """
        counts: Counter[str] = Counter()
        latest: dict[str, tuple[Question, str, str]] = {}
        for question, origin, match in self._lines():
            counts[question.key] += 1
            latest[question.key] = question, origin, match
            if match == _TUNED:
                del counts[question.key]
        found = (UntunedShape(*latest[key], count) for key, count in counts.items())
        return sorted(found, key=lambda miss: (-miss.processes, miss.question.kernel, str(miss.question.problem.shape)))

    def _lines(self) -> Iterator[tuple[Question, str, str]]:
        if not self.path.exists():
            return
        try:
            with self.path.open("rb") as file:
                yield from (found for line in file if (found := _read(line)))
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror}; check its permissions") from error


def _read(line: bytes) -> tuple[Question, str, str] | None:
    try:
        known = typed(json.loads(line), _Line)
        problem = Problem.of(known.kernel, known.dims, known.dtype)
        return Question(problem, known.device), known.origin, known.match
    except (ValueError, RecursionError):
        return None
