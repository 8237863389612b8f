"""The prior of kernels that run on Ascend's cube cores alone: a config's expected cost, from counts.

A core works on one tile after the other. In each trip of the depth it brings operands to L1 while it multiplies those
of the trip before, if L1 holds two pairs; otherwise it takes turns. A product begins with a load from L1 that nothing
hides, as the compiler's template for it does, and a tile ends with a store that the next tile waits for. The axes of
the tiling are the rows of a product, its depth and its columns.

Each penalty is the factor by which the time grows when one more of these effects is counted. All prices are the
modelled part's; none was chosen for the prior.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from tilewise.kernels.spec import ITEM_BYTES, Config, Dot, KernelSpec, Problem, Target, Tiling, ceil_div
from tilewise.tuner.hardware.ascend_costs import FIGURES
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES, PARTS
from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES

__all__ = ["cube_penalties"]

_OVERFLOW = 4.0
"""Least penalty of operands or sums that do not fit on chip; it grows with the overflow."""

_SIBLING = "Ascend910B4"
"""The part whose clock, memory rate and cache are used for a part that is not listed."""

_COST = {name: figure.value for name, figure in {**FIGURES, **CUBE_FIGURES}.items()}
_SIDE = 16
"""Rows and columns of a fractal of products."""


class _Effects(NamedTuple):
    """The effects that are counted, in this order."""

    tails: bool = False
    waves: bool = False
    fractals: bool = False
    """Tiles and depths that are no multiple of a fractal, and the start of each instruction."""
    operand_loads: bool = False
    """Loads from L1 that no product hides."""
    l1_traffic: bool = False
    """Operands brought to L1 more slowly than they are multiplied."""
    turns: bool = False
    """Operands and products that take turns, as L1 holds one pair only."""
    result_stores: bool = False
    starts: bool = False


def cube_penalties(
    spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, target: Target
) -> dict[str, float]:
    """Return the penalties by name, each 1 or more."""
    assert tiling.dot is not None, "only tilings with a product come here"
    kernel = _Kernel(spec, problem, config, tiling, tiling.dot, target)
    names = _Effects._fields
    steps = (_Effects(*[True] * count) for count in range(len(names) + 1))
    times = list(itertools.accumulate(map(kernel.cycles, steps), max))
    factors = {name: after / before for name, (before, after) in zip(names, itertools.pairwise(times), strict=True)}
    overflow = max(tiling.streamed_bytes / ON_CHIP_BYTES["cbuf"], tiling.resident_bytes / ON_CHIP_BYTES["cc"])
    return {**factors, "on_chip": _OVERFLOW * overflow if overflow > 1 else 1.0}


class _Kernel:
    """A config's launch: its tiles, and what a trip of one of them costs, in cycles of a core."""

    def __init__(
        self, spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, dot: Dot, target: Target
    ) -> None:
        part = PARTS.get(target.name, PARTS[_SIBLING])
        self._tiling, self._dot, self._cores = tiling, dot, target.matrix_cores
        self._item = ITEM_BYTES[spec.matrix_dtype(problem) if spec.matrix_dtype else problem.dtype]
        self._width = 32 // self._item
        self._slow = _COST["mad_float32"] if self._item == 4 else 1.0
        self._doubled = bool(config.get("multibuffer", True)) and 2 * tiling.streamed_bytes <= ON_CHIP_BYTES["cbuf"]
        self._written = sum(buffer.bytes for buffer in spec.buffers(problem).values() if buffer.role != "in")
        self._rate = self._bytes_per_cycle(spec.bytes(problem), part.l2_mib << 20, part.l2_gb_s, part.read_gb_s)
        self._rate = min(_COST["cube_read_bytes"], self._rate / part.clock_ghz)
        self._launch = _COST["launch_us"] * part.clock_ghz * 1e3
        self._needed = spec.flops(problem) / 2 / (_SIDE * _SIDE * self._width) * self._slow / self._cores
        self._least = spec.bytes(problem) / self._cores / self._rate

    def _bytes_per_cycle(self, needed: int, cache: int, near_gb_s: float, far_gb_s: float) -> float:
        """Return the GB/s of one core: of the L2 cache, with what comes from global memory at that one's rate.

        Tiles that run at a time share their operands, `group` rows of them; so do later ones of the same rows. What the
        cache does not hold is fetched once per group of rows.
        """
        if needed <= cache:
            return near_gb_s / self._cores
        high = max(1, min(self._dot.group, ceil_div(self._tiling.axes[0].size, self._dot.m)))
        across = max(1, self._cores // high)
        fetched = (high * self._dot.m + across * self._dot.n) / (self._cores * (self._dot.m + self._dot.n))
        return 1 / (fetched / far_gb_s + (1 - fetched) / near_gb_s) / self._cores

    def cycles(self, counted: _Effects) -> float:
        """Return the cycles of the busiest core."""
        tiling, dot = self._tiling, self._dot
        if not counted.tails:
            return self._launch + max(self._needed, self._least)
        rows, _, cols = (axis.programs for axis in tiling.axes)
        trips = math.prod(axis.trips for axis in tiling.axes)
        each = rows * cols / self._cores
        tiles = math.ceil(each) if counted.waves else each
        multiplied = self._product(dot, counted)
        exposed = self._operand_loads(dot, multiplied) if counted.operand_loads else 0.0
        computed = multiplied + exposed
        moved = self._to_l1(dot) if counted.l1_traffic else 0.0
        trip = computed + moved if counted.turns and not self._doubled else max(computed, moved)
        tile = trips * trip
        if counted.result_stores:
            tile += dot.m * dot.n * self._written / self._sums() / _COST["fix_bytes"] + _COST["fix_start"]
            tile += min(moved, computed)  # the first operands of a tile
        total = self._launch + tiles * tile
        if counted.starts:
            total += _COST["program_start"] * (1 if dot.programs else math.ceil(each))
        return total

    def _sums(self) -> int:
        return self._tiling.axes[0].size * self._tiling.axes[-1].size

    def _product(self, dot: Dot, counted: _Effects) -> float:
        if not counted.fractals:
            return dot.m * dot.n * dot.k / (_SIDE * _SIDE * self._width) * self._slow
        fractals = ceil_div(dot.m, _SIDE) * ceil_div(dot.n, _SIDE) * ceil_div(dot.k, self._width)
        return fractals * self._slow + self._parts(dot) * _COST["mad_start"]

    def _parts(self, dot: Dot) -> int:
        """Return the parts in which L0A and L0B, halved, hold a trip's depth."""
        step = max(_SIDE, self._width)
        longest = (ON_CHIP_BYTES["ca"] // 2) // self._item // max(dot.m, dot.n, step) // step * step
        return ceil_div(dot.k, max(longest, step))

    def _operand_loads(self, dot: Dot, multiplied: float) -> float:
        """Return the cycles in which a trip's product waits for operands from L1: those of its first part, and what
        the others take beyond the product."""
        parts = self._parts(dot)
        loads = 2 * _COST["mte1_start"] * parts + dot.k * self._item * (
            dot.m / _COST["l0a_bytes"] + dot.n / _COST["l0b_bytes"]
        )
        flags = 4 * _COST["flag"] * parts
        return (loads + flags) / parts + max(0.0, loads + flags - multiplied) * (1 - 1 / parts)

    def _to_l1(self, dot: Dot) -> float:
        """Return the cycles in which a trip's operands come to L1, each row at the cost of some bytes more."""
        rows = self._tiling.streamed_bytes / max(1, dot.row_bytes)
        return 2 * _COST["nd2nz_start"] + (self._tiling.streamed_bytes + rows * _COST["nd2nz_row_bytes"]) / self._rate
