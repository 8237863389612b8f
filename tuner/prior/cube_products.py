"""The cycles of a product in L1 on an Ascend cube core: operands to L0A and L0B, and fractals of products; and those
of the vector cores that go on with its sums.

Loads from L1 hide behind products, from trip to trip. All prices are the modelled part's.
"""

from __future__ import annotations

from tilewise.kernels.spec import Dot, ceil_div
from tilewise.tuner.hardware.ascend_costs import FIGURES
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES
from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES

__all__ = ["COST", "SIBLING", "CubeProducts", "in_vector_repeats", "vector_half"]

SIBLING = "Ascend910B4"
"""The part whose clock, memory rate and cache are used for a part that is not listed."""

COST = {name: figure.value for name, figure in {**FIGURES, **CUBE_FIGURES}.items()}
"""Costs of the modelled part; docs/model.md gives the source of each."""

_REPEAT_BYTES = 256
"""Bytes that a vector instruction takes at a time."""

_SIDE = 16
"""Rows and columns of a fractal of products."""


class CubeProducts:
    """Products of operands with elements of so many bytes."""

    def __init__(self, item_bytes: int) -> None:
        self._item = item_bytes
        self._width = 32 // item_bytes
        self._slow = COST["mad_float32"] if item_bytes == 4 else 1.0

    def in_even_shares(self, products: float) -> float:
        """Return the cycles of so many products in whole fractals."""
        return products / (_SIDE * _SIDE * self._width) * self._slow

    def cycles(self, dot: Dot) -> float:
        """Return the cycles of a trip's product, in fractals and instructions."""
        fractals = ceil_div(dot.m, _SIDE) * ceil_div(dot.n, _SIDE) * ceil_div(dot.k, self._width)
        return fractals * self._slow + self.parts(dot) * COST["mad_start"]

    def parts(self, dot: Dot) -> int:
        """Return the parts in which L0A and L0B, halved, hold a trip's depth."""
        step = max(_SIDE, self._width)
        longest = (ON_CHIP_BYTES["ca"] // 2) // self._item // max(dot.m, dot.n, step) // step * step
        return ceil_div(dot.k, max(longest, step))

    def operand_loads(self, dot: Dot, multiplied: float) -> float:
        """Return the cycles that a trip's operands take from L1 beyond its product."""
        parts = self.parts(dot)
        loads = 2 * COST["mte1_start"] * parts + dot.k * self._item * (
            dot.m / COST["l0a_bytes"] + dot.n / COST["l0b_bytes"]
        )
        flags = 4 * COST["flag"] * parts
        return max(0.0, loads + flags - multiplied)


def vector_half(rows: int, cols: int, operations: float) -> float:
    """Return the cycles in which each of two vector cores takes half of a tile of float32 sums from workspace and does
    so many operations for each."""
    return 2 * rows * cols / COST["l2_read_bytes"] + in_vector_repeats(rows, cols) * operations + COST["cross_flag"]


def in_vector_repeats(rows: int, cols: int) -> float:
    """Return the repeats of a vector instruction over half a tile of float32 numbers."""
    return 4 * rows * cols / 2 / _REPEAT_BYTES
