"""An index of the shapes that something is stored for: which are nearest to another one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewise.db.records import Dims, Problem, Shape, canonical_json
from tilewise.tuner.space.problem import shape_distance

__all__ = ["ShapeIndex", "ShapesBySource"]

_MOST = 8

_UNSORTED = 512
"""Shapes that are looked at one by one before they are sorted in, which moves all others: 20 ms of a million."""

_THINNEST = 1 / 64
"""Half of the thickness of the first slab, as a distance."""

_ROUNDING = 1e-4
"""What float32 may have lost of a distance."""

_NO_FLAGS = canonical_json({})

_TO_SPACES = str.maketrans("[]{},", "     ")

_SAMPLE = 10_000
"""Shapes by which the dimension that tells best apart is chosen."""


class ShapeIndex:
    """Shapes of the same dimensions. A million take 24 MB and are searched in a fraction of a millisecond.

    They are kept sorted along the dimension that tells them best apart, so that only a slab of them is looked at: a
    thin one first, and thicker ones where that holds too few.
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
        """A row a shape, in the order of `names`. A shape that is there already counts twice, which does no harm."""
        self._waiting.append(sizes[:, [names.index(name) for name in self.names]])

    def near(self, dims: Dims, bound: float, most: int = _MOST) -> list[tuple[float, Dims]]:
        """The `most` nearest shapes no farther than `bound`, each with its distance (`shape_distance`), nearest first;
        the shape itself is not among them."""
        self.settle()
        unsorted = (row for block in self._waiting for row in block.tolist())
        rows = {*map(tuple, unsorted), *self._nearest(dims, bound, 4 * most)}
        shapes: Iterator[Dims] = (dict(zip(self.names, row, strict=True)) for row in rows)
        found = ((shape_distance(shape, dims), shape) for shape in shapes)
        return sorted((pair for pair in found if 0 < pair[0] <= bound), key=lambda pair: pair[0])[:most]

    def _nearest(self, dims: Dims, bound: float, most: int) -> list[tuple[int, ...]]:
        """Sizes of about the nearest among the sorted ones."""
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
            if len(inside) >= most or reach >= bound:
                break
            reach = min(4 * reach, bound)
        if len(inside) > most:
            inside = inside[np.argpartition(away[inside], most)[:most]]
        return [tuple(sizes) for sizes in self._sizes[low + inside].tolist()]

    def settle(self) -> None:
        """Sort in what waits, where that is much: anew where it is most of all, or else each into its place."""
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
        places = np.searchsorted(self._logs[self._axis], logs[self._axis])
        self._sizes = np.insert(self._sizes, places, new, axis=0)
        self._logs = np.insert(self._logs, places, logs, axis=1)


def _logs_of(sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    return np.log(sizes).astype(np.float32)


def _sizes(shapes: str, names: Sequence[str]) -> NDArray[np.int64] | None:
    """A row a shape of a list in canonical JSON, in a fifth of the time that parsing it takes; None unless all shapes
    have these names."""
    count = shapes.count("{")
    for name in names:
        key = f"{json.dumps(name, ensure_ascii=False)}:"
        if shapes.count(key) != count:
            return None
        shapes = shapes.replace(key, "")
    if '"' in shapes or "e" in shapes:  # a name of its own, a flag, or a word of JSON's: true, false
        return None
    return np.fromstring(shapes.translate(_TO_SPACES), dtype=np.int64, sep=" ").reshape(count, len(names))


class ShapesBySource:
    """The shapes of one kernel, dtype and device, by the hash of the source that they were tuned with."""

    def __init__(self) -> None:
        self._indexes: dict[tuple[str, str, frozenset[str]], ShapeIndex] = {}

    def add(self, shapes: Iterable[tuple[str, Shape]]) -> None:
        """Each with its source's hash. A shape without dimensions, a recorded landscape's, has no neighbours."""
        groups: defaultdict[tuple[str, str, tuple[str, ...]], list[tuple[int, ...]]] = defaultdict(list)
        for source_hash, shape in shapes:
            problem = Problem.of("", shape, "")
            if problem.dims:
                flags = canonical_json(dict(problem.flags))
                groups[source_hash, flags, tuple(problem.dims)].append(tuple(problem.dims.values()))
        for (source_hash, flags, names), rows in groups.items():
            self._of(source_hash, flags, names).add(names, np.array(rows, dtype=np.int64))

    def read(self, source_hash: str, shapes: str) -> None:
        """A list of shapes in canonical JSON."""
        names = tuple(json.JSONDecoder().raw_decode(shapes, 1)[0])
        sizes = _sizes(shapes, names) if names else None
        if sizes is None:
            self.add((source_hash, shape) for shape in json.loads(shapes))
        else:
            self._of(source_hash, _NO_FLAGS, names).add(names, sizes)

    def _of(self, source_hash: str, flags: str, names: Sequence[str]) -> ShapeIndex:
        return self._indexes.setdefault((source_hash, flags, frozenset(names)), ShapeIndex(names))

    def settle(self) -> None:
        for index in self._indexes.values():
            index.settle()

    def near(self, problem: Problem, source_hash: str | None, bound: float) -> list[tuple[float, Dims]]:
        """The nearest shapes with the problem's flags, as `ShapeIndex.near` gives them; None is any source."""
        known = problem.dims.keys()
        wanted = [
            index
            for (source, flags, names), index in self._indexes.items()
            if names == known and flags == canonical_json(dict(problem.flags)) and source_hash in (None, source)
        ]
        found = (pair for index in wanted for pair in index.near(problem.dims, bound))
        return sorted(found, key=lambda pair: (pair[0], *pair[1].values()))
