"""What the clock knows of values: scalars that may be unknown, and views of memory as shapes without contents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

__all__ = ["UNKNOWN", "UnknownOperation", "View", "ceil"]


class UnknownOperation(ValueError):
    """The compiled code holds an operation that the model has no cost or meaning for."""


class _Unknown:
    """The value of `UNKNOWN`: any use of it in Python raises TypeError, so that nothing is decided by accident."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise TypeError("an unknown value has no equal")

    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false")

    __hash__ = None  # type: ignore[assignment]


UNKNOWN = _Unknown()
"""A scalar that depends on tensor contents."""


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class View:
    """A memref at run time: `base` is the function argument's number (-1 on chip)."""

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
        """Vector repeats over all elements: one takes 256 bytes in a row, or 32 bytes of each of eight rows."""
        rows, row_bytes = self.rows()
        if rows == 1:
            return ceil(row_bytes, 256)
        return min(rows * ceil(row_bytes, 256), ceil(rows, 8) * ceil(row_bytes, 32))

    def rows(self) -> tuple[int, int]:
        """How many contiguous runs the view has, and the bytes of each."""
        return _rows(self.sizes, self.strides, self.item_bits)

    def collapsed(self, groups: tuple[tuple[int, ...], ...]) -> View:
        """With neighbouring dimensions folded into one each."""
        sizes, strides = _folded(self.sizes, self.strides, groups)
        return View(self.base, self.offset, sizes, strides, self.item_bits)


_Shape = tuple[int, ...]


@lru_cache(maxsize=10_000)  # a loop asks for the same few shapes again and again
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
    """The stride of dimensions folded into one is that of the innermost which is longer than 1."""
    longer = [[strides[i] for i in group if sizes[i] != 1] for group in groups]
    return tuple(math.prod(sizes[i] for i in group) for group in groups), tuple(s[-1] if s else 1 for s in longer)
