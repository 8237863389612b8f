"""Rows of a transfer in global memory: how many there are, and how much of the memory's time they take.

Memory is drawn in lines of 512 bytes. A row that does not begin on a block of 32 bytes touches one line more than its
bytes need, and each row costs the time of some bytes besides.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, View
from tilewise.tuner.hardware.ascend_costs import Costs

__all__ = ["LINE", "Drawn", "drawn"]

LINE = 512
"""Bytes of a line, the unit in which memory is drawn and in which accesses take turns."""

_BLOCK = 32


@dataclass(frozen=True, slots=True)
class Drawn:
    """`rows` are runs of contiguous bytes; `bytes` is what the transfer costs of the memory's rate. `misaligned` rows
    begin in the middle of a block."""

    rows: int
    bytes: float
    misaligned: bool


def drawn(view: View, costs: Costs, beside: float | None = None) -> Drawn:
    """Return what a transfer of this view of global memory draws; a row costs `beside` bytes more than it has."""
    rows, row_bytes = view.rows()
    least = row_bytes + (costs["row_bytes"] if beside is None else beside)
    misaligned = _misaligned(view, rows)
    if misaligned:
        least += costs["misaligned_line"] * min(row_bytes, LINE)
    return Drawn(rows, rows * least, misaligned)


def _misaligned(view: View, rows: int) -> bool:
    """Return whether rows begin in the middle of a block. Buffers themselves are aligned to lines."""
    item = view.item_bits // 8
    steps = [stride for size, stride in zip(view.sizes, view.strides, strict=True) if size > 1 and stride != 1]
    if rows > 1 and any(stride * item % _BLOCK for stride in steps):
        return True
    return view.offset is not UNKNOWN and int(view.offset) * item % _BLOCK != 0
