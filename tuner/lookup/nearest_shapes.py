"""An index of stored shapes, for finding those nearest to a given shape."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewise.db.records import Dims, Problem, Shape, canonical_json
from tilewise.tuner.space.problem_checks import shape_distance

__all__ = ["NEAREST_BOUND", "ShapeIndex", "ShapesBySource"]

NEAREST_BOUND = math.log(1.25)
"""Largest distance of a neighbour: the ratios of its dimensions multiply to at most 1.25.

Beyond that, the forecast from all tuned shapes (`portfolio`) answers. Chosen by hand: the comparison that decided it
was not kept. An earlier bound was 2, before there was a forecast. No run compares both on one shape, so it is not known
how much the value matters. docs/runtime.md has what launched configs cost at shapes never tuned, whether a neighbour's
or the forecast's, which the raw files tell apart."""

_LIMIT = 8
"""Neighbours returned by default. This and the four below were chosen by hand, for the time of a look-up."""

_UNSORTED = 512
"""Most shapes kept unsorted and compared one by one. Sorting them in moves all others: 20 ms for a million. Chosen by
hand."""

_THINNEST = 1 / 64
"""Half of the first slab's thickness, as a distance. Chosen by hand."""

_ROUNDING = 1e-4
"""Bound on the rounding error of a distance in float32. Chosen by hand."""

_NO_FLAGS = canonical_json({})
_FLAG_TYPES = (bool, str)

_TO_SPACES = str.maketrans("[]{},", "     ")

_SAMPLE = 10_000
"""Shapes sampled to choose the dimension with the most distinct values. Chosen by hand."""


class ShapeIndex:
    """An index of shapes with the same dimensions. A million take 24 MB; a search takes a fraction of a millisecond.

    The shapes are sorted along the dimension with the most distinct values, so that only a slab of them is compared: a
    thin one first, and thicker ones if that holds too few.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._waiting: list[NDArray[np.int64]] = []
        self._sizes: NDArray[np.int64] = np.empty((0, len(self.names)), dtype=np.int64)
        self._logs: NDArray[np.float32] = np.empty((len(self.names), 0), dtype=np.float32)
        self._axis = 0

    def __len__(self) -> int:
        return len(self._sizes) + sum(map(len, self._waiting))

    def add(self, names: Sequence[str], sizes: NDArray[np.int64]) -> None:
        """Add one row of `sizes` per shape, with columns in the order of `names`. Duplicate shapes do no harm."""
        self._waiting.append(sizes[:, [names.index(name) for name in self.names]])

    def near(self, dims: Dims, bound: float, most: int = _LIMIT) -> list[tuple[float, Dims]]:
        """Return the `most` nearest shapes within `bound`, each with its distance (`shape_distance`), nearest first.

        The shape itself is excluded.
        """
        self.settle()
        unsorted = (row for block in self._waiting for row in block.tolist())
        rows = {*map(tuple, unsorted), *self._nearest(dims, bound, 4 * most)}
        shapes: Iterator[Dims] = (dict(zip(self.names, row, strict=True)) for row in rows)
        found = ((shape_distance(shape, dims), shape) for shape in shapes)
        return sorted((pair for pair in found if 0 < pair[0] <= bound), key=lambda pair: pair[0])[:most]

    def _nearest(self, dims: Dims, bound: float, limit: int) -> list[tuple[int, ...]]:
        """Return the dims of about `limit` nearest shapes among the sorted ones."""
        wanted = _logs_of(np.array([dims[name] for name in self.names]))
        axis, middle = self._logs[self._axis], wanted[self._axis]
        reach = min(_THINNEST, bound)
        while True:
            far = reach + _ROUNDING
            low, high = np.searchsorted(axis, [middle - far, middle + far])
            away = np.zeros(high - low, dtype=np.float32)
            for logs, log in zip(self._logs, wanted, strict=True):
                away += np.abs(logs[low:high] - log)
            if high - low == len(axis):
                reach = bound
            inside = np.flatnonzero(away <= reach + _ROUNDING)
            if len(inside) >= limit or reach >= bound:
                break
            reach = min(4 * reach, bound)
        if len(inside) > limit:
            inside = inside[np.argpartition(away[inside], limit)[:limit]]
        return [tuple(row) for row in self._sizes[low + inside].tolist()]

    def settle(self) -> None:
        """Sort in the waiting shapes if they are many: re-sort all if most are new, else insert each in its place."""
        if sum(map(len, self._waiting)) <= (_UNSORTED if len(self._sizes) else 0):
            return
        new, self._waiting = np.concatenate(self._waiting), []
        if len(new) > len(self._sizes):
            new = np.concatenate([self._sizes, new])
            sample = new[:: max(1, len(new) // _SAMPLE)]
            self._axis = int(np.argmax([len(np.unique(column)) for column in sample.T]))
            self._sizes, self._logs = new[:0], self._logs[:, :0]
        logs = _logs_of(new.T)
        order = np.argsort(logs[self._axis], kind="stable")
        new, logs = new[order], logs[:, order]
        indexes = np.searchsorted(self._logs[self._axis], logs[self._axis])
        self._sizes = np.insert(self._sizes, indexes, new, axis=0)
        self._logs = np.insert(self._logs, indexes, logs, axis=1)


def _logs_of(sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    return np.log(sizes).astype(np.float32)


def _parsed_rows(shapes: str, names: Sequence[str]) -> NDArray[np.int64] | None:
    """Convert a list of shapes in canonical JSON to one row per shape, in a fifth of the time that parsing it takes.

    Returns None unless all shapes have exactly these names.
    """
    count = shapes.count("{")
    for name in names:
        key = f"{json.dumps(name, ensure_ascii=False)}:"
        if shapes.count(key) != count:
            return None
        shapes = shapes.replace(key, "")
    if '"' in shapes or "e" in shapes:  # another name, a flag, or the JSON words true and false
        return None
    return np.fromstring(shapes.translate(_TO_SPACES), dtype=np.int64, sep=" ").reshape(count, len(names))


class ShapesBySource:
    """An index of the shapes of one kernel, dtype and device, by the source hash that they were tuned with."""

    def __init__(self) -> None:
        self._indexes: dict[tuple[str, str, frozenset[str]], ShapeIndex] = {}

    def add(self, shapes: Iterable[tuple[str, Shape]]) -> None:
        """Add pairs of source hash and shape. Shapes without dimensions (recorded landscapes) are skipped."""
        groups: defaultdict[tuple[str, str, tuple[str, ...]], list[tuple[object, ...]]] = defaultdict(list)
        for source_hash, shape in shapes:  # up to a million: a `Problem` each would take three times as long
            given = {name: value for name, value in shape.items() if isinstance(value, _FLAG_TYPES)}
            dims = {name: size for name, size in shape.items() if name not in given} if given else shape
            if dims:
                flags = canonical_json(given) if given else _NO_FLAGS
                groups[source_hash, flags, tuple(dims)].append(tuple(dims.values()))
        for (source_hash, flags, names), rows in groups.items():
            self._of(source_hash, flags, names).add(names, np.array(rows, dtype=np.int64))

    def read(self, source_hash: str, shapes: str) -> None:
        """Add a list of shapes in canonical JSON."""
        names = tuple(json.JSONDecoder().raw_decode(shapes, 1)[0])
        rows = _parsed_rows(shapes, names) if names else None
        if rows is None:
            self.add((source_hash, shape) for shape in json.loads(shapes))
        else:
            self._of(source_hash, _NO_FLAGS, names).add(names, rows)

    def _of(self, source_hash: str, flags: str, names: Sequence[str]) -> ShapeIndex:
        return self._indexes.setdefault((source_hash, flags, frozenset(names)), ShapeIndex(names))

    def settle(self) -> None:
        for index in self._indexes.values():
            index.settle()

    def near(self, problem: Problem, source_hash: str | None, bound: float) -> list[tuple[float, Dims]]:
        """Return the nearest shapes with the problem's flags, like `ShapeIndex.near`. None accepts any source."""
        known = problem.dims.keys()
        wanted = [
            index
            for (source, flags, names), index in self._indexes.items()
            if names == known and flags == canonical_json(dict(problem.flags)) and source_hash in (None, source)
        ]
        found = (pair for index in wanted for pair in index.near(problem.dims, bound))
        return sorted(found, key=lambda pair: (pair[0], *pair[1].values()))
