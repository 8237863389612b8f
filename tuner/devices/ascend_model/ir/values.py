"""Values as the clock sees them: scalars that may be unknown, and views of memory as shapes without contents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewise.tuner.devices.ascend_model.ir.hivm import DYNAMIC

__all__ = ["UNKNOWN", "DependsOnContents", "UnknownOperation", "View", "ceil", "expanded"]


class UnknownOperation(ValueError):
    """An operation of the compiled code that the model has no cost or meaning for."""


class DependsOnContents(UnknownOperation):
    """A decision of the compiled code that follows from tensor contents, which are not known."""


class _Unknown:
    """The type of `UNKNOWN`: any use of it in Python raises TypeError, so that nothing is decided by accident."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise TypeError("an unknown value cannot be compared")

    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false")

    __hash__ = None  # type: ignore[assignment]


UNKNOWN = _Unknown()
"""A scalar that depends on tensor contents."""


def ceil(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class View:
    """A memref at run time: `base` is the index of the function argument (-1 on chip)."""

    base: int
    offset: Any
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    item_bits: int

    def elements(self) -> int:
        return math.prod(self.sizes)

    def bytes(self) -> int:
        return ceil(self.elements() * self.item_bits, 8)

    def repeats(self) -> int:
        """Return the vector repeats over all elements; one takes 256 contiguous bytes, or 32 of each of 8 rows."""
        rows, row_bytes = self.rows()
        if rows == 1:
            return ceil(row_bytes, 256)
        return min(rows * ceil(row_bytes, 256), ceil(rows, 8) * ceil(row_bytes, 32))

    def rows(self) -> tuple[int, int]:
        """Return the number of contiguous runs in the view, and the bytes of each."""
        return _rows(self.sizes, self.strides, self.item_bits)

    def collapsed(self, groups: tuple[tuple[int, ...], ...]) -> View:
        """Return the view with each group of neighbouring dimensions folded into one."""
        sizes, strides = _folded(self.sizes, self.strides, groups)
        return View(self.base, self.offset, sizes, strides, self.item_bits)


_Shape = tuple[int, ...]


def expanded(sizes: _Shape, strides: _Shape, groups: Sequence[Sequence[int]], shape: _Shape) -> tuple[_Shape, _Shape]:
    """Return sizes and strides after each dimension was cut into a group of neighbouring ones, as `memref.expand_shape`
    does: `shape` is the result's, with at most one `DYNAMIC` size per group. A group keeps its dimension's stride."""
    new_sizes, new_strides = list(shape), [1] * len(shape)
    for size, stride, group in zip(sizes, strides, groups, strict=True):
        known = math.prod(shape[axis] for axis in group if shape[axis] != DYNAMIC)
        for axis in reversed(group):
            if shape[axis] == DYNAMIC:
                new_sizes[axis] = size // known if known else 0
            new_strides[axis] = stride
            stride *= new_sizes[axis]
        if (cut := math.prod(new_sizes[axis] for axis in group)) != size:
            raise UnknownOperation(f"memref.expand_shape cuts {size} elements into {cut}")
    return tuple(new_sizes), tuple(new_strides)


@lru_cache(maxsize=10_000)  # a loop uses the same few shapes over and over
def _rows(sizes: _Shape, strides: _Shape, item_bits: int) -> tuple[int, int]:
    run, runs = 1, 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if runs == 1 and (stride == run or size == 1):
            run *= size
        else:
            runs *= size
    return runs, ceil(run * item_bits, 8)


@lru_cache(maxsize=10_000)
def _folded(sizes: _Shape, strides: _Shape, groups: tuple[_Shape, ...]) -> tuple[_Shape, _Shape]:
    """Return folded sizes and strides. A group's stride is that of its innermost dimension longer than 1."""
    longer = [[strides[i] for i in group if sizes[i] != 1] for group in groups]
    return tuple(math.prod(sizes[i] for i in group) for group in groups), tuple(s[-1] if s else 1 for s in longer)
