"""Shapes that were launched without a tuned config: kept in a file, to be tuned next.

An append-only file of JSON lines, one a shape and process: any number of processes add to it at once, and a line that
a crash cut short is passed over.
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
"""Stands for `match` where a shape is no miss any more."""

_MOST_BYTES = 16 << 20
"""Of the file: beyond that nothing is added. It is some 80,000 shapes."""


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
    """A shape that was guessed: how (`match`), and by how many processes. `origin` says where the spec is found."""

    question: Question
    origin: str
    match: str
    processes: int

    def to_json(self) -> dict[str, Any]:
        return {**self.question.to_json(), "match": self.match, "processes": self.processes, "origin": self.origin}


class UntunedShapes:
    """The file at `path`; it need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, question: Question, origin: str, match: str) -> None:
        """Append one. Raises `StoreError` where the file cannot be written."""
        text = canonical_json({**question.to_json(), "match": match, "origin": origin}) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as file:
                if file.tell() < _MOST_BYTES:
                    file.write(text.encode())  # one write at the end: lines of several processes do not mix
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}; check its permissions") from error

    def forget(self, question: Question) -> None:
        """Say that a shape is tuned now. Raises `StoreError` where the file cannot be written."""
        self.add(question, "", _TUNED)

    def all(self) -> list[UntunedShape]:
        """Each shape once, those that most processes met first."""
        counts: Counter[str] = Counter()
        latest: dict[str, tuple[Question, str, str]] = {}
        for question, origin, match in self._lines():
            counts[question.key] += 1
            latest[question.key] = question, origin, match
            if match == _TUNED:
                del counts[question.key]
        found = (UntunedShape(*latest[key], count) for key, count in counts.items())
        return sorted(found, key=lambda miss: (-miss.processes, miss.question.kernel, str(miss.question.dims)))

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
