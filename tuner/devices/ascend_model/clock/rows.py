"""Rows of a transfer in global memory: how many there are, and how much of the memory's time they take.

Memory is drawn in lines of 512 bytes. A row that does not begin on a block of 32 bytes touches one line more than its
bytes need, and each row costs the time of some bytes besides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, View
from tilewise.tuner.hardware.ascend_costs import Costs
from tilewise.tuner.hardware.cube_costs import LINE

__all__ = ["BLOCK", "Drawn", "drawn", "narrow"]

BLOCK = 32
"""Bytes in which a core moves data; a row that begins within one touches a line more."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """`rows` are runs of contiguous bytes, multiples of `aligned` bytes apart, a line at most; `bytes` is what the
    transfer costs of the memory's rate."""

    rows: int
    bytes: float
    aligned: int

    @property
    def misaligned(self) -> bool:
        """Return whether rows begin in the middle of a block."""
        return self.aligned < BLOCK


def drawn(view: View, costs: Costs, beside: float | None = None) -> Drawn:
    """Return what a transfer of this view of global memory draws; a row costs `beside` bytes more than it has."""
    rows, row_bytes = view.rows()
    least = row_bytes + (costs["row_bytes"] if beside is None else beside)
    aligned = _alignment(view, rows)
    if aligned < BLOCK:
        least += costs["misaligned_line"] * min(row_bytes, LINE)
    return Drawn(rows, rows * least, aligned)


def narrow(outside: View, inside: View) -> tuple[int, bool]:
    """Return how many rows of less than a block a transfer has, as elements that lie apart and windows of a pooling
    are, and whether they begin less than a block after one another in global memory."""
    rows = max(outside.rows()[0], inside.rows()[0])
    each = outside.bytes() // rows
    if rows == 1 or each >= BLOCK:
        return 0, False
    if outside.rows()[1] > each:
        return rows, True
    longer = [stride for size, stride in zip(outside.sizes, outside.strides, strict=True) if size > 1]
    apart = [stride for stride in longer if stride != 1] or longer
    return rows, apart[-1] * outside.item_bits < BLOCK * 8


def _alignment(view: View, rows: int) -> int:
    """Return the bytes at whose multiples all rows begin, as far as it matters. Buffers are aligned to lines.

    Where the first row begins matters only within a block.
    """
    item = view.item_bits // 8
    steps = [stride for size, stride in zip(view.sizes, view.strides, strict=True) if size > 1 and stride != 1]
    apart = math.gcd(LINE, *(stride * item for stride in steps)) if rows > 1 else LINE
    first = 0 if view.offset is UNKNOWN else int(view.offset) * item
    return math.gcd(apart, first) if first % BLOCK else apart
