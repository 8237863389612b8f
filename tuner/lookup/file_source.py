"""A source of look-ups over an exported file."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewise.db.exchange.jsonfile import one_line
from tilewise.db.exchange.native.runtime_file import WinnersFile
from tilewise.db.exchange.trials import trial_from_json
from tilewise.db.records import Clock, Dims, Question, Result, Scope, Shape, Trial, canonical_json
from tilewise.kernels.spec import KernelSpec, Target
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.lookup.nearest_shapes import ShapesBySource
from tilewise.tuner.portfolio.build import MOST_SHAPES, portfolios
from tilewise.tuner.portfolio.portfolio import Portfolio, portfolio_from_json

__all__ = ["FileSource"]

_log = logging.getLogger("tilewise.runtime")


class FileSource:
    """A `Source` over an export file, which is loaded once. It may be called from any thread. Raises `BadImport`."""

    def __init__(self, path: str | Path) -> None:
        self._winners = WinnersFile(path)
        self._portfolios = list(self._readable(self._winners.portfolios))
        self._shapes: dict[tuple[str, str, str], tuple[ShapesBySource, dict[str, list[Shape]]]] = {}
        self._built: dict[tuple[str, str, str, str, str | None], list[Portfolio]] = {}
        self._lock = threading.Lock()

    def answers(self, question: Question, source_hash: str | None) -> Sequence[Result]:
        return self._winners.answers(question, source_hash)

    def near(self, question: Question, source_hash: str | None, bound: float) -> Sequence[tuple[float, Dims]]:
        with self._lock:
            return self._of(question)[0].near(question.problem, source_hash, bound)

    def portfolios(self, question: Question, source_hash: str | None, spec: KernelSpec) -> Sequence[Portfolio]:
        """Return the portfolios in the file, or else those that can be built from its entries."""
        given = [p for p in self._portfolios if _suits(p.scope, question, source_hash)]
        if given:
            return sorted(given, key=lambda portfolio: portfolio.scope.clock is not Clock.MEASURED)
        with self._lock:
            flags = canonical_json([sorted(question.dims), dict(question.problem.flags)])
            key = (question.kernel, question.dtype, question.device, flags, source_hash)
            if key not in self._built:
                self._built[key] = self._build(question, source_hash, spec)
            return self._built[key]

    def target(self, device: str) -> Target | None:
        cores = self._winners.cores(device)
        return known_target(device, cores) if cores else None

    def close(self) -> None:
        return

    def _readable(self, bodies: Sequence[Any]) -> Iterator[Portfolio]:
        for body in bodies:
            try:
                yield portfolio_from_json(body)
            except ValueError as error:
                _log.warning("ignoring a portfolio in %s: %s", self._winners.path, one_line(error))

    def _of(self, question: Question) -> tuple[ShapesBySource, dict[str, list[Shape]]]:
        family = (question.kernel, question.dtype, question.device)
        if family not in self._shapes:
            index, by_source = ShapesBySource(), dict[str, list[Shape]]()
            for source, shape in self._winners.shapes(*family):
                by_source.setdefault(source, []).append(shape)
            index.add((source, shape) for source, tuned in by_source.items() for shape in tuned)
            self._shapes[family] = index, by_source
        return self._shapes[family]

    def _build(self, question: Question, source_hash: str | None, spec: KernelSpec) -> list[Portfolio]:
        by_source = self._of(question)[1]
        shapes = [shape for source, tuned in by_source.items() if source_hash in (None, source) for shape in tuned]
        chosen = shapes[:: max(1, len(shapes) // MOST_SHAPES)]
        entries = (entry for shape in chosen for entry in self._winners.entries(shape))
        return portfolios(
            ((r.scope, _trials(r, body)) for r, body in entries if _suits(r.scope, question, source_hash)), spec
        )


def _suits(scope: Scope, question: Question, source_hash: str | None) -> bool:
    same = (scope.kernel, scope.dtype, scope.device) == (question.kernel, question.dtype, question.device)
    same = same and scope.problem.flags == question.problem.flags
    return same and source_hash in (None, scope.source_hash) and scope.dims.keys() == question.dims.keys()


def _trials(result: Result, evidence: Sequence[Any]) -> list[Trial]:
    """Return the trials of an entry, or its winner alone if it was exported without them or they are damaged."""
    assert result.winner is not None, "entries have winners"
    try:
        return [trial_from_json(body) for body in evidence] or [result.winner]
    except ValueError:
        return [result.winner]
