"""An index of the shapes that something is stored for: which are nearest to another one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.db.records import Dims

__all__ = ["ShapeIndex", "SourceShapes", "shape_distance"]

_MOST = 8

_UNSORTED = 512
"""Shapes that are looked at one by one before they are sorted in: sorting a million takes a second."""


def shape_distance(one: Dims, other: Dims) -> float:
    """How far two shapes are apart: the sum over dimensions of their log ratios; log 2 where one is twice as large."""
    return sum(abs(math.log(one[name] / other[name])) for name in one)


class ShapeIndex:
    """Shapes of the same dimensions. A million take 24 MB and are searched in a millisecond or two.

    They are kept sorted along the dimension that tells them best apart, so that only a slab of them is looked at.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._waiting: list[tuple[int, ...]] = []
        self._sizes: NDArray[np.int64] = np.empty((0, len(self.names)), dtype=np.int64)
        self._logs: NDArray[Any] = np.empty((len(self.names), 0), dtype=np.float32)
        self._axis = 0

    def __len__(self) -> int:
        return len(self._sizes) + len(self._waiting)

    def add(self, dims: Dims) -> None:
        """A shape that is there already counts twice, which does no harm."""
        self._waiting.append(tuple(dims[name] for name in self.names))

    def near(self, dims: Dims, bound: float, most: int = _MOST) -> list[tuple[float, Dims]]:
        """The `most` nearest shapes no farther than `bound`, each with its distance (`shape_distance`), nearest first;
        the shape itself is not among them."""
        if len(self._waiting) > _UNSORTED or not len(self._sizes):
            self._settle()
        rows = {*self._slab(dims, bound, 4 * most), *self._waiting}
        shapes: Iterator[Dims] = (dict(zip(self.names, row, strict=True)) for row in rows)
        found = ((shape_distance(shape, dims), shape) for shape in shapes)
        return sorted((pair for pair in found if 0 < pair[0] <= bound), key=lambda pair: pair[0])[:most]

    def _slab(self, dims: Dims, bound: float, most: int) -> list[tuple[int, ...]]:
        """Sizes of about the nearest among the sorted ones."""
        wanted = np.log([dims[name] for name in self.names]).astype(np.float32)
        reach = bound + 1e-4  # what float32 may have lost
        axis, middle = self._logs[self._axis], wanted[self._axis]
        low, high = np.searchsorted(axis, [middle - reach, middle + reach])
        away = np.zeros(high - low, dtype=np.float32)
        for logs, log in zip(self._logs, wanted, strict=True):
            away += np.abs(logs[low:high] - log)
        inside = np.flatnonzero(away <= reach)
        if len(inside) > most:
            inside = inside[np.argpartition(away[inside], most)[:most]]
        return [tuple(self._sizes[low + place].tolist()) for place in inside]

    def _settle(self) -> None:
        if self._waiting:
            self._sizes = np.concatenate([self._sizes, np.array(self._waiting, dtype=np.int64)])
            self._waiting = []
        logs = np.log(self._sizes.T).astype(np.float32)
        self._axis = int(np.argmax([len(np.unique(column)) for column in logs]))
        order = np.argsort(logs[self._axis], kind="stable")
        self._sizes, self._logs = self._sizes[order], np.ascontiguousarray(logs[:, order])


class SourceShapes:
    """The shapes of one kernel, dtype and device, by the hash of the source that they were tuned with."""

    def __init__(self) -> None:
        self._indexes: dict[tuple[str, frozenset[str]], ShapeIndex] = {}

    def add(self, source_hash: str, dims: Dims) -> None:
        index = self._indexes.setdefault((source_hash, frozenset(dims)), ShapeIndex(dims))
        index.add(dims)

    def near(self, dims: Dims, source_hash: str | None, bound: float) -> list[tuple[float, Dims]]:
        """See `ShapeIndex.near`; None is any source."""
        wanted = [
            index
            for (source, names), index in self._indexes.items()
            if names == dims.keys() and source_hash in (None, source)
        ]
        found = (pair for index in wanted for pair in index.near(dims, bound))
        return sorted(found, key=lambda pair: (pair[0], *pair[1].values()))
