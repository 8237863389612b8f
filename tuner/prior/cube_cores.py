"""The prior of one product per tile on Ascend's cube cores, alone or with vector cores that go on with its sums: a
config's expected cost, from counts.

A core works on one tile after the other. In each trip of the depth it brings operands to L1 while it multiplies those
of the trip before, if L1 holds two pairs; otherwise it brings them once those have left L1. A product begins with a
load from L1 that nothing hides, as the compiler's template for it does, and a tile ends with a store that the next tile
waits for. The axes of the tiling are the rows of a product, its depth and its columns.

Each penalty is the factor by which the time grows when one more of these effects is counted. All prices are the
modelled part's; none was chosen for the prior.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tilewise.kernels.spec import ITEM_BYTES, Config, Dot, KernelSpec, Problem, Target, Tiling, ceil_div
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES, PARTS
from tilewise.tuner.hardware.cube_costs import LINE, line_share
from tilewise.tuner.prior.cube_products import COST, SIBLING, CubeProducts, vector_half
from tilewise.tuner.prior.effects import on_chip_penalty, time_by_effects

__all__ = ["cube_penalties"]

_BLOCK = 32
"""Bytes at whose multiples a row begins without touching a line more."""


class _Effects(NamedTuple):
    """The effects that are counted, in this order."""

    tails: bool
    waves: bool
    fractals: bool
    """Tiles and depths that are no multiple of a fractal, and the start of each instruction."""
    operand_loads: bool
    """Loads from L1 that no product hides."""
    l1_traffic: bool
    """Operands brought to L1 more slowly than they are multiplied."""
    turns: bool
    """Operands and products that take turns, as L1 holds one pair only."""
    result_stores: bool
    epilogue: bool
    """Work of vector cores on a tile's sums, which the next tile of the same program hides."""
    starts: bool


def cube_penalties(
    spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, target: Target
) -> dict[str, float]:
    """Return the penalties by name, each 1 or more."""
    assert tiling.dot is not None, "only tilings with a product come here"
    kernel = _Kernel(spec, problem, config, tiling, tiling.dot, target)
    share = max(tiling.streamed_bytes / ON_CHIP_BYTES["cbuf"], tiling.resident_bytes / ON_CHIP_BYTES["cc"])
    return {**time_by_effects(_Effects, kernel.cycles), "on_chip": on_chip_penalty(share)}


class _Kernel:
    """A config's launch: its tiles, and what a trip of one of them costs, in cycles of a core."""

    def __init__(
        self, spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, dot: Dot, target: Target
    ) -> None:
        part = PARTS.get(target.name, PARTS[SIBLING])
        self._tiling, self._dot, self._cores = tiling, dot, target.matrix_cores
        item = ITEM_BYTES[spec.matrix_dtype(problem) if spec.matrix_dtype else problem.dtype]
        self._products = CubeProducts(item)
        self._drawn = _drawn(tiling, dot, item, _alignments(spec, problem, "in"), part.clock_ghz)
        self._stored_apart = any(aligned < _BLOCK for aligned in _alignments(spec, problem, "out"))
        self._doubled = bool(config.get("multibuffer", True)) and 2 * tiling.streamed_bytes <= ON_CHIP_BYTES["cbuf"]
        self._written = sum(buffer.bytes for buffer in spec.buffers(problem).values() if buffer.role != "in")
        self._rate = self._bytes_per_cycle(spec.bytes(problem), part.l2_mib << 20, part.l2_gb_s, part.read_gb_s)
        self._rate /= part.clock_ghz
        self._clock_mhz = part.clock_ghz * 1e3
        self._launch = COST["launch_us"] * self._clock_mhz
        self._needed = self._products.in_even_shares(spec.flops(problem) / 2) / self._cores
        self._least = spec.bytes(problem) / self._cores / self._rate

    def _bytes_per_cycle(self, needed: int, cache: int, near_gb_s: float, far_gb_s: float) -> float:
        """Return the GB/s of one core: of the L2 cache, or of what global memory brings there meanwhile.

        Tiles that run at a time share their operands, `group` rows of them; so do later ones of the same rows. What the
        cache does not hold is fetched once per group of rows.
        """
        if needed <= cache:
            return near_gb_s / self._cores
        high = max(1, min(self._dot.group, ceil_div(self._tiling.axes[0].size, self._dot.m)))
        across = max(1, self._cores // high)
        fetched = (high * self._dot.m + across * self._dot.n) / (self._cores * (self._dot.m + self._dot.n))
        return min(far_gb_s / fetched, near_gb_s) / self._cores

    def cycles(self, counted: _Effects) -> float:
        """Return the cycles of the busiest core."""
        tiling, dot = self._tiling, self._dot
        if not counted.tails:
            return self._launch + max(self._needed, self._least)
        rows, _, cols = (axis.programs for axis in tiling.axes)
        trips = math.prod(axis.trips for axis in tiling.axes)
        each = rows * cols / self._cores
        tiles = math.ceil(each) if counted.waves else each
        even = self._products.in_even_shares(dot.m * dot.n * dot.k)
        multiplied = self._products.cycles(dot) if counted.fractals else even
        exposed = self._products.operand_loads(dot, multiplied) if counted.operand_loads else 0.0
        computed = multiplied + exposed
        moved = self._to_l1(self._rate) if counted.l1_traffic else 0.0
        trip = max(computed, moved)
        if counted.turns and not self._doubled:  # the next operands come once the last part of these has left L1
            alone = self._to_l1(math.inf)  # other cores leave the memory alone meanwhile
            trip = max(trip, alone + computed - multiplied / self._products.parts(dot))
        tile = trips * trip
        if counted.result_stores:
            stored = self._written / self._sums() if dot.alone else 4  # float32 where vector cores go on
            row = dot.n * stored
            row += min(row, LINE) * COST["misaligned_line"] * (self._stored_apart and dot.alone)
            tile += dot.m * row / COST["fix_bytes"] + COST["fix_start"]
            tile += min(moved, computed)  # the first operands of a tile
        total = self._launch + tiles * tile
        if counted.epilogue and not dot.alone:
            after = vector_half(dot.m, dot.n, dot.epilogue)
            beside = 0.0 if dot.programs else tile
            total += COST["mixed_launch_us"] * self._clock_mhz
            total += max(0.0, after + beside - tile) * (tiles - 1) + after
        if counted.starts:
            total += COST["program_start"] * (1 if dot.programs else math.ceil(each))
        return total

    def _sums(self) -> int:
        return self._tiling.axes[0].size * self._tiling.axes[-1].size

    def _to_l1(self, rate: float) -> float:
        """Return the cycles in which a trip's operands come to L1, at this rate of the memory."""
        return sum(max(size / rate, alone) for size, alone in self._drawn)


def _alignments(spec: KernelSpec, problem: Problem, role: str) -> list[int]:
    """Return for each matrix of this role the bytes of whose multiples its rows are apart, a line at most."""
    matrices = [each for each in spec.buffers(problem).values() if each.role == role and len(each.shape) > 1]
    apart = [max(each.strides[-2:]) if each.strides else each.shape[-1] for each in matrices]
    return [math.gcd(LINE, step * ITEM_BYTES[each.dtype]) for step, each in zip(apart, matrices, strict=True)]


def _drawn(
    tiling: Tiling, dot: Dot, item_bytes: int, alignments: list[int], clock_ghz: float
) -> list[tuple[float, float]]:
    """Return for each operand of a trip the bytes of the memory's time that it takes, and the core's cycles.

    Each row costs some bytes more, and a line more where it begins within a block. The first has `dot.m` rows along the
    depth.
    """
    rows = dot.operand_rows or tiling.streamed_bytes / max(1, dot.row_bytes)
    first = min(tiling.streamed_bytes, dot.m * dot.k * item_bytes)
    sides = (dot.m, first), (max(0, rows - dot.m), tiling.streamed_bytes - first)
    found = []
    for (count, size), aligned in zip(sides, [*alignments, LINE, LINE], strict=False):
        lines = min(size, count * LINE) * COST["misaligned_line"] * (aligned < _BLOCK)
        odd = COST["odd_line_ns"] * clock_ghz * line_share(COST.__getitem__, aligned) * (count + size / LINE)
        alone = COST["nd2nz_start"] + max(count * COST["nd2nz_row"] + size / COST["cube_read_bytes"], odd)
        found.append((size + count * COST["nd2nz_row_bytes"] + lines, alone))
    return found
