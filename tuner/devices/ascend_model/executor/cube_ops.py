"""The operations of a cube core: tiles from global memory to L1 in fractals, products, and results back to memory.

A tile of R x C elements lies in L1 as `C1 x R1 x 16 x C0` fractals of 16 rows of 32 bytes, an accumulator in L0C as
`N1 x M1 x 16 x 16`. Sums are kept in float32, those of integers in int32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from tilewise.tuner.devices.ascend_model.clock.core import FIX, MTE1, MTE2, PIPES, M
from tilewise.tuner.devices.ascend_model.executor.global_memory import GlobalMemory
from tilewise.tuner.devices.ascend_model.executor.groups import Group, Step
from tilewise.tuner.devices.ascend_model.executor.hazards import Order
from tilewise.tuner.devices.ascend_model.executor.memory import Array, Fault, Layout, View, decode, encode, place
from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.devices.ascend_model.ir.mmad import (
    FRACTAL,
    Action,
    Flag,
    Load,
    LoadBias,
    Mmad,
    Multiply,
    Part,
    fractal_width,
    needs_barrier,
)
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation, ceil

__all__ = ["CUBE_STEPS", "CubeCore"]

_QUANTISED = {"F322F16": ("f32", "f16"), "F322BF16": ("f32", "bf16")}
"""Types before and after, by `pre_quant`."""

_EXACT_TERMS = 1024
"""Terms whose products of 8-bit integers add up exactly in float32."""


class CubeCore(Protocol):
    """The memories that a cube core's operations use."""

    layout: Layout
    memory: GlobalMemory


# Global memory to L1 --------------------------------------------------------------------------------------------------


def _to_fractals(core: CubeCore, op: Op) -> Step:
    """Compile `nd2nz`: copy rows of global memory to fractals, on MTE2. It fills up each row's last 32 bytes with
    zeros, and leaves rows beyond the last one as they were."""
    source, target = _only_operands(op, {"dst_continuous", "init_out_buffer"})
    if op.attributes.get("init_out_buffer"):
        raise UnknownOperation(f"the model does not support {place(op)} with an initial value")

    def step(group: Group) -> None:
        outside, inside = group.values[source], group.values[target]
        if not outside.elements():
            return
        core.layout.require(inside, "cbuf", op)
        rows, cols = _extents(outside, op)
        across, down, height, width = inside.sizes
        if (across, down, height) != (ceil(cols, width), ceil(rows, FRACTAL), FRACTAL):
            raise Fault(f"{place(op)} is between memory of shapes {outside.sizes} and {inside.sizes}, which differ")
        group.order.use(MTE2, op, [], [inside])
        stored = group.chip.stored(inside, op)
        whole, rest = divmod(rows, FRACTAL)
        for part, window in core.memory.read(group, MTE2, op, outside):
            padded = np.zeros((len(window), rows, across * width), stored.dtype)
            padded[..., :cols] = window
            lines = padded.reshape(len(window), rows, across, width).swapaxes(1, 2)
            blocks = lines[:, :, : whole * FRACTAL].reshape(len(window), across, whole, FRACTAL, width)
            stored[part, :, :whole] = blocks
            if rest:
                stored[part, :, whole, :rest] = lines[:, :, whole * FRACTAL :]

    return step


# L1 to L0C ------------------------------------------------------------------------------------------------------------


def _multiply(core: CubeCore, op: Op) -> Step:
    """Compile `mmadL1`: MTE1 brings each part of the operands to L0A and L0B, and M multiplies them."""
    product = Mmad.of(op)

    def step(group: Group) -> list[Group]:
        groups = group.split([product.first, product.depth, product.cols, *op.segments()[7]])
        for part in groups:
            _product(core, part, product, op)
        return groups

    return step


def _product(core: CubeCore, group: Group, product: Mmad, op: Op) -> None:
    values, order = group.values, group.order
    a, b, out = values[product.a], values[product.b], values[product.out]
    for view, space in ((a, "cbuf"), (b, "cbuf"), (out, "cc")):
        core.layout.require(view, space, op)
    depth, cols = int(values[product.depth]), int(values[product.cols])
    rows, wide = product.extents(a.sizes, b.sizes)
    deepest, height = product.deepest(a.sizes, b.sizes), out.sizes[1] * FRACTAL
    if cols > min(wide, out.sizes[0] * FRACTAL) or depth > deepest or height > rows:
        raise Fault(f"{place(op)} multiplies {height} x {depth} x {cols} elements of smaller tiles")
    sums = replace(out, sizes=(ceil(cols, FRACTAL), *out.sizes[1:]))
    bias = _bias(core.layout, values, product, sums, op)
    try:
        actions = product.course(values, rows, wide, a.item_bits // 8)
        for action in actions if order.checks else ():
            _take(core.layout, order, action, product, op, ((a, "ca", rows), (b, "cb", wide)), sums, bias)
            if isinstance(action, Multiply) and needs_barrier(height, cols):
                order.barrier(M)
    except ValueError as error:
        raise error if isinstance(error, Fault) else Fault(f"{place(op)}: {error}") from error
    if not order.multiplies:
        return
    width = fractal_width(a.item_bits // 8)
    taken = min(deepest, ceil(depth, width) * width)
    left, right = _matrix(group, a, product.transposed[0], op), _matrix(group, b, not product.transposed[1], op)
    left, right = left[:, :height, :taken], right[:, : sums.sizes[0] * FRACTAL, :taken]
    start = None if not values[product.first] else 0.0 if bias is None else _columns(group, bias, sums, op)
    _add(group, sums, left, right, op, start=start)


def _bias(layout: Layout, values: Sequence[View], product: Mmad, sums: View, op: Op) -> View | None:
    if product.bias is None:
        return None
    bias = values[product.bias]
    layout.require(bias, "cbuf", op)
    if bias.elements() < sums.sizes[0] * FRACTAL:
        raise Fault(f"{place(op)} adds a bias of {bias.elements()} columns to {sums.sizes[0] * FRACTAL}")
    return bias


def _columns(group: Group, bias: View, sums: View, op: Op) -> Array:
    """Return the bias for each row of the accumulator's fractals."""
    across = sums.sizes[0]
    stored = decode(group.chip.stored(bias, op), bias.dtype)
    return stored.reshape(len(stored), -1)[:, : across * FRACTAL].reshape(len(stored), across, 1, 1, FRACTAL)


def _take(
    layout: Layout,
    order: Order,
    action: Action,
    product: Mmad,
    op: Op,
    sides: Sequence[tuple[View, str, int]],
    sums: View,
    bias: View | None,
) -> None:
    """Take an action of a product in the order of pipes. `sides` are each operand, its memory, and its extent there."""
    if isinstance(action, Flag):
        use = order.set_flag if action.verb == "set" else order.wait_flag
        use(PIPES.index(action.source), PIPES.index(action.target), action.event, op)
        return
    if isinstance(action, LoadBias):
        order.use(MTE1, op, [bias] if bias else [], [])
        return
    operands = [_in_l0(layout, space, action.part, extent, view) for view, space, extent in sides]
    if isinstance(action, Load):
        side = action.side
        part = _slice(sides[side][0], action.part, product.transposed[side], side)
        order.use(MTE1, op, [part], [operands[side]])
    else:
        order.use(M, op, [*operands, sums], [sums])


def _slice(view: View, part: Part, transposed: bool, side: int) -> View:
    """Return the part of an operand in L1 that lies at this depth."""
    axis = (1 if transposed else 0) if side == 0 else (0 if transposed else 1)
    unit = view.sizes[3] if axis == 0 else view.sizes[2]
    first, count = part.start // unit, ceil(part.depth, unit)
    sizes = tuple(count if at == axis else size for at, size in enumerate(view.sizes))
    return replace(view, offset=view.offset + first * view.strides[axis], sizes=sizes)


def _in_l0(layout: Layout, space: str, part: Part, extent: int, like: View) -> View:
    """Return the place of an operand's part in L0A or L0B."""
    address = layout.starts[space] + part.half * part.half_bytes
    return View(-1, address, 0, (extent * part.stored,), (1,), like.dtype)


def _matrix(group: Group, view: View, swapped: bool, op: Op) -> Array:
    """Return a tile in fractals as one matrix per program, or its transpose."""
    across, down, height, width = view.sizes
    stored = decode(group.chip.stored(view, op), view.dtype)
    if swapped:
        return stored.transpose(0, 1, 4, 2, 3).reshape(len(stored), across * width, down * height)
    return stored.transpose(0, 2, 3, 1, 4).reshape(len(stored), down * height, across * width)


def _add(group: Group, sums: View, left: Array, right: Array, op: Op, *, start: Array | float | None) -> None:
    """Add the products of rows of `left` and of `right` to the accumulator, or to `start` if it is given."""
    wide = np.float64 if left.dtype == np.int8 and left.shape[2] > _EXACT_TERMS else np.float32
    found = np.matmul(left.astype(wide), right.astype(wide).swapaxes(1, 2))
    stored = group.chip.stored(sums, op)
    across, down, *_ = sums.sizes
    blocks = found.reshape(len(found), down, FRACTAL, across, FRACTAL).transpose(0, 3, 1, 2, 4)
    if start is not None:
        stored[...] = blocks + start
    else:
        stored[...] += blocks.astype(stored.dtype)


# L0C to global memory -------------------------------------------------------------------------------------------------


def _to_rows(core: CubeCore, op: Op) -> Step:
    """Compile `fixpipe`: store an accumulator in rows, rounded to the type there, on FIX."""
    source, target = _only_operands(op, {"dma_mode", "pre_quant"})
    if op.attributes["dma_mode"] != "nz2nd":
        raise UnknownOperation(f"the model does not support {place(op)} with dma_mode {op.attributes['dma_mode']}")
    rounding = op.attributes.get("pre_quant")
    if rounding is not None and rounding not in _QUANTISED:
        raise UnknownOperation(f"the model does not support {place(op)} with pre_quant {rounding}")

    def step(group: Group) -> None:
        inside, outside = group.values[source], group.values[target]
        if not outside.elements():
            return
        core.layout.require(inside, "cc", op)
        rows, cols = _extents(outside, op)
        if inside.sizes[:2] != (ceil(cols, FRACTAL), ceil(rows, FRACTAL)):
            raise Fault(f"{place(op)} is between memory of shapes {inside.sizes} and {outside.sizes}, which differ")
        kinds = (inside.dtype, outside.dtype)
        if kinds != _QUANTISED.get(str(rounding), (inside.dtype, inside.dtype)):
            raise Fault(f"{place(op)} stores {kinds[0]} as {kinds[1]} with pre_quant {rounding}")
        group.order.use(FIX, op, [inside], [])
        elements = _matrix(group, inside, False, op)[:, :rows, :cols]
        core.memory.store(group, FIX, op, outside, encode(elements, outside.dtype), "none")

    return step


def _extents(outside: View, op: Op) -> tuple[int, int]:
    """Return rows and columns of a tile in global memory."""
    if outside.on_chip:
        raise Fault(f"{place(op)} uses on-chip memory as if it were global")
    if len(outside.sizes) != 2:
        raise UnknownOperation(f"the model does not support {place(op)} of {len(outside.sizes)} dimensions")
    rows, cols = outside.sizes
    return rows, cols


def _only_operands(op: Op, known: set[str]) -> tuple[int, int]:
    """Return source and target of an operation without further operands or attributes."""
    (source,), (target,), *rest = op.segments()
    others = sorted(op.attributes.keys() - known - {"operandSegmentSizes"})
    if any(rest) or others:
        raise UnknownOperation(f"the model does not support {place(op)} with {', '.join(others) or 'these operands'}")
    return source, target


CUBE_STEPS: Mapping[str, Callable[[CubeCore, Op], Step]] = {
    "hivm.hir.nd2nz": _to_fractals,
    "hivm.hir.mmadL1": _multiply,
    "hivm.hir.fixpipe": _to_rows,
}
"""How each operation of a cube core becomes a step."""
