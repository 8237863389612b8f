"""The times of a cube core's operations: tiles from global memory to L1, products, and results back to memory.

A product is carried out as the compiler's template does it (`ir/mmad.py`): MTE1 fills one half of L0A and L0B while M
multiplies from the other, ordered by the template's own flags where the function gives none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tilewise.tuner.devices.ascend_model.clock.core import FIX, MTE1, MTE2, PIPES, Core, M, Memory, Rate
from tilewise.tuner.devices.ascend_model.clock.rows import drawn
from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.devices.ascend_model.ir.mmad import (
    FRACTAL,
    HALVES,
    Flag,
    Load,
    LoadBias,
    Mmad,
    Part,
    fractal_width,
    needs_barrier,
)
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, DependsOnContents, UnknownOperation, View, ceil
from tilewise.tuner.hardware.ascend_costs import Costs
from tilewise.tuner.hardware.cube_costs import LINE, line_share

__all__ = ["CUBE_STEPS", "CubeClock", "rate_of"]

_ALIGNMENTS = [2**power for power in range(LINE.bit_length())]

_Values = list[Any]
_Step = Callable[[_Values, Core], None]


class CubeClock(Protocol):
    """The program's clock, as far as the operations need it."""

    costs: Costs
    memory: Memory


def _to_l1(clock: CubeClock, op: Op) -> _Step:
    """Compile `nd2nz`: rows of global memory to fractals in L1, on MTE2.

    Each row costs the memory's time of some bytes beside its own. Rows that do not begin with a line take the core some
    time for each line that they touch, wherever it comes from. Rows as far apart as the instruction's stride field
    cannot say are loaded one by one.
    """
    source, costs = op.operands[0], clock.costs
    start, row_cycles, row_bytes = costs["nd2nz_start"], costs["nd2nz_row"], costs["nd2nz_row_bytes"]
    issue, far, far_row_ns = costs["vector_issue"], costs["far_stride"], costs["far_row_ns"]
    line_ns = {at: costs["odd_line_ns"] * line_share(costs.__getitem__, at) for at in _ALIGNMENTS}

    def step(values: _Values, core: Core) -> None:
        outside: View = values[source]
        size = outside.bytes()
        if size == 0:
            core.scalar(issue)
            return
        taken = drawn(outside, costs, row_bytes)
        rows = outside.sizes[0]
        one_by_one = len(outside.strides) == 2 and outside.strides[0] >= far
        core.scalar(issue * (rows if one_by_one else 1))
        rate = rate_of(clock.memory.inward, outside, op)
        lines = (taken.rows + size / LINE) * clock.memory.clock_ghz
        alone = start + max(taken.rows * row_cycles + size / rate.core, line_ns[taken.aligned] * lines)
        if one_by_one:
            alone = max(alone, rows * far_row_ns * clock.memory.clock_ghz)
        cycles = max(alone, taken.bytes / rate.share)
        core.occupy(MTE2, cycles, rate.latency)
        if one_by_one or taken.misaligned:
            core.odd_rows += cycles
        core.elements += size
        core.reads[outside.base] += size
        core.touched(outside, True)

    return step


def _fill(clock: CubeClock, op: Op) -> _Step:
    """Compile `vbrc` to L1: one number written to a whole tile, on MTE2."""
    target = op.operands[1]
    issue, start, rate = clock.costs["vector_issue"], clock.costs["nd2nz_start"], clock.costs["l1_fill_bytes"]

    def step(values: _Values, core: Core) -> None:
        core.scalar(issue)
        core.occupy(MTE2, start + values[target].bytes() / rate, 0.0)

    return step


def _multiply(clock: CubeClock, op: Op) -> _Step:
    """Compile `mmadL1`.

    The halves of L0 pass from product to product: published products of compiled Triton kernels keep the cube unit busy
    nine tenths of the time (4096 cubed in float32 on a 910B4 takes 2268 us, its instructions alone 2077 here).
    """
    product, costs = Mmad.of(op), clock.costs
    issue, flag, latency = costs["vector_issue"], costs["flag"], costs["mad_latency"]
    loads = _Loads(product, costs)

    def step(values: _Values, core: Core) -> None:
        a, b, out = values[product.a], values[product.b], values[product.out]
        depth, cols = _known(values[product.depth], op), _known(values[product.cols], op)
        rows, wide = product.extents(a.sizes, b.sizes)
        height, item = out.sizes[1] * FRACTAL, a.item_bits // 8
        for half in HALVES:
            if (M, MTE1, half) not in core.flags:  # L0 is free at first
                core.set_flag(M, MTE1, half)
        for action in product.course(values, rows, wide, item, handed=True):
            if isinstance(action, Flag):
                source, target = PIPES.index(action.source), PIPES.index(action.target)
                if action.verb == "set":
                    core.set_flag(source, target, action.event)
                else:
                    core.wait_flag(source, target, action.event, flag)
            elif isinstance(action, Load):
                cycles, instructions = loads.of(action.side, action.part, cols if action.side else height, item)
                core.scalar(issue * instructions)
                core.occupy(MTE1, cycles, 0.0)
            elif isinstance(action, LoadBias):
                core.scalar(issue)
                core.occupy(MTE1, loads.of_bias(values[action.bias].bytes()), 0.0)
            else:
                core.scalar(issue)
                core.occupy(M, _product_cycles(costs, height, action.part.depth, cols, item), latency)
                if needs_barrier(height, cols):
                    core.barrier(M, costs["barrier"])
        core.elements += height * depth * cols

    return step


def _product_cycles(costs: Costs, rows: int, depth: int, cols: int, item_bytes: int) -> float:
    """Return the cycles of one instruction of the cube unit, which multiplies fractals."""
    fractals = ceil(rows, FRACTAL) * ceil(depth, fractal_width(item_bytes)) * ceil(cols, FRACTAL)
    each = costs["mad_float32"] if item_bytes == 4 else costs["mad_fractal"]
    return costs["mad_start"] + fractals * each


class _Loads:
    """Loads from L1 to L0A (side 0) and L0B (side 1)."""

    def __init__(self, product: Mmad, costs: Costs) -> None:
        self._swapped = product.transposed[0], not product.transposed[1]
        self._rates = costs["l0a_bytes"], costs["l0b_bytes"]
        self._start, self._next = costs["mte1_start"], costs["mte1_next"]

    def of(self, side: int, part: Part, extent: int, item_bytes: int) -> tuple[float, int]:
        """Return the cycles and the instructions of one part of an operand with `extent` rows or columns.

        8-bit operands are turned in blocks of 32 x 32, and A is loaded a row of fractals at a time otherwise.
        """
        wide = ceil(extent, FRACTAL) * FRACTAL
        instructions = 1
        if item_bytes == 1:
            turned = ceil(extent, fractal_width(1)) * ceil(part.stored, fractal_width(1))
            instructions = turned if self._swapped[side] else (ceil(extent, FRACTAL) if side == 0 else 1)
        bytes_moved = wide * part.stored * item_bytes
        return self._start + (instructions - 1) * self._next + bytes_moved / self._rates[side], instructions

    def of_bias(self, size: int) -> float:
        """Return the cycles of a load to the bias table, for which those of an operand are taken."""
        return self._start + size / self._rates[1]


def _to_memory(clock: CubeClock, op: Op) -> _Step:
    """Compile `fixpipe`: an accumulator to rows of global memory, on FIX."""
    target = op.operands[1]
    costs = clock.costs
    start, row_cycles, row_bytes = costs["fix_start"], costs["nd2nz_row"], costs["row_bytes"]
    issue = costs["vector_issue"]

    def step(values: _Values, core: Core) -> None:
        core.scalar(issue)
        outside: View = values[target]
        size = outside.bytes()
        if size == 0:
            return
        taken = drawn(outside, costs, row_bytes)
        rate = rate_of(clock.memory.outward, outside, op)
        alone = max(start + (taken.rows - 1) * row_cycles, taken.bytes / rate.core)
        core.occupy(FIX, max(alone, taken.bytes / rate.share), rate.latency)
        core.elements += size
        core.writes[outside.base] += size
        core.touched(outside, False)

    return step


def rate_of(rates: Mapping[int, Rate], view: View, op: Op) -> Rate:
    """Return the rate of the view's buffer; raises `UnknownOperation` for memory that is no argument."""
    if view.base not in rates:
        raise UnknownOperation(f"the model does not support {op.name} on memory other than the kernel's arguments")
    return rates[view.base]


def _known(value: Any, op: Op) -> Any:
    if value is UNKNOWN:
        raise DependsOnContents(f"the model cannot follow {op.name} where it depends on tensor contents")
    return value


CUBE_STEPS: Mapping[str, Callable[[CubeClock, Op], _Step]] = {
    "hivm.hir.nd2nz": _to_l1,
    "hivm.hir.mmadL1": _multiply,
    "hivm.hir.fixpipe": _to_memory,
    "hivm.hir.vbrc": _fill,
}
"""The function that makes a step of each operation of a cube core; `vbrc` of L1 only."""
