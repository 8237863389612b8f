"""The results of each vector operation, on arrays with one row per program.

Element-wise operations compute in the tiles' own types and round once. A sum or product over an axis folds halves onto
one another, as the hardware does. Maxima and minima propagate NaN. Comparisons give bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewise.tuner.devices.ascend_model.executor.memory import Array, OnChip, OutOfBounds, View, encode, place
from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation

__all__ = ["Compute", "combine", "computation"]

Values = Sequence[Any]
Compute = Callable[[OnChip, Values], None]
"""A function that reads and writes views of on-chip memory; its values are the program's, by number."""


def computation(op: Op) -> tuple[Compute, tuple[int, ...], tuple[int, ...]]:
    """Return the function of an operation, and the numbers of the memrefs that it reads and that it writes.

    Raises `UnknownOperation` for an operation without a meaning here, or in a form that the project has never seen.
    """
    short = op.name.removeprefix("hivm.hir.")
    if short not in _MAKERS:
        raise UnknownOperation(f"the model cannot execute the operation {op.name}")
    if op.attributes.get("transpose"):
        raise UnknownOperation(f"the model does not support {place(op)} with transposed operands")
    inputs, outputs, scratch = _operands(op)
    kinds = dict(zip(op.operands, op.types, strict=True))
    scratch = tuple(n for n in scratch if 0 not in getattr(kinds[n], "shape", ()))  # some need no room after all
    compute = _MAKERS[short](op, inputs, outputs)

    def run(chip: OnChip, values: Values) -> None:
        for number in scratch:
            chip.spoil(values[number], op)
        compute(chip, values)

    memory = {n for n, kind in kinds.items() if isinstance(kind, MemRef)}
    return run, tuple(n for n in inputs if n in memory), (*scratch, *outputs)


def _operands(op: Op) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of inputs, outputs and scratch space."""
    if op.name == "hivm.hir.varange":
        output, *numbers = op.segments()
        return tuple(n for group in numbers for n in group), output, ()
    if op.name == "hivm.hir.vgather":
        source, indices, target, *scratch = op.operands
        return (source, indices), (target,), tuple(scratch)
    if "operandSegmentSizes" not in op.attributes:
        source, target, *scratch = op.operands
        return (source,), (target,), tuple(scratch)
    inputs, outputs, *rest = op.segments()
    return inputs, outputs, tuple(n for group in rest for n in group)


def _value(chip: OnChip, values: Values, number: int, axes: int, op: Op) -> Any:
    """Return an operand: a tile's elements, or a number, which may differ from program to program."""
    value = values[number]
    if isinstance(value, View):
        return chip.read(value, op)
    return value.reshape(-1, *[1] * axes) if isinstance(value, np.ndarray) else value


# Element by element ---------------------------------------------------------------------------------------------


def _elementwise(function: Callable[..., Any]) -> Callable[[Op, Sequence[int], Sequence[int]], Compute]:
    """Return the maker of an element-wise operation; an operand of extent 1 along an axis is repeated."""

    def make(op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Compute:
        (output,) = outputs

        def compute(chip: OnChip, values: Values) -> None:
            target: View = values[output]
            operands = [_value(chip, values, n, len(target.sizes), op) for n in inputs]
            if isinstance(function, np.ufunc) and target.dtype not in ("bf16", "i1"):
                function(*operands, out=chip.stored(target, op), casting="same_kind")
            else:
                chip.write(target, function(*operands), op)

        return compute

    return make


def _divide(op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Compute:
    """Divide; integer quotients are rounded towards zero."""
    kind = op.types[op.operands.index(outputs[0])]
    whole = isinstance(kind, MemRef) and kind.dtype.startswith("i")
    return _elementwise(_quotient if whole else np.divide)(op, inputs, outputs)


def _quotient(a: Any, b: Any) -> Any:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compare(op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Compute:
    return _elementwise(_chosen(_COMPARISONS, op, "compare_mode"))(op, inputs, outputs)


def _half_away(values: Array) -> Array:
    """Round to the nearest whole number, halves away from zero."""
    rounded: Array = np.trunc(values + np.copysign(0.5, values))
    return rounded


_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "rint": np.rint,
    "round": _half_away,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "truncwithoverflow": np.trunc,  # between integers: wrapped, as every cast between them is
}


def _cast(op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Compute:
    """Cast, rounding by `round_mode`: to a narrower float's precision; to an integer, clamped to its range; to a whole
    number of the same float."""
    (source,), (target,) = inputs, outputs
    rounding = _chosen(_ROUNDINGS, op, "round_mode")
    kinds = [kind.dtype for kind in op.types[:2] if isinstance(kind, MemRef)]
    floats = [kind in ("f64", "f32", "f16", "bf16") for kind in kinds]
    narrower = floats == [True, True] and _BITS[kinds[1]] < _BITS[kinds[0]]
    rounded = narrower and op.attributes["round_mode"] != "rint"  # by which values are stored

    def compute(chip: OnChip, values: Values) -> None:
        elements = chip.read(values[source], op)
        if rounded:
            elements = _narrowed(elements, kinds[1], rounding)
        elif floats == [True, False]:
            elements = _held(rounding(elements), kinds[1])
        elif kinds[0] == kinds[1]:
            elements = rounding(elements)
        chip.write(values[target], elements != 0 if kinds[1] == "i1" else elements, op)

    return compute


_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}

_FORMATS = {"f32": (24, -126), "f16": (11, -14), "bf16": (8, -126)}
"""Bits of the significand, and exponent of the smallest normal number."""


def _narrowed(elements: Array, dtype: str, rounding: Callable[[Array], Array]) -> Array:
    """Round floats to a narrower type's precision: multiples of the last place that each value has there, as Ascend C's
    `Cast` defines its modes. Values beyond the type's range become infinite when they are stored."""
    bits, least = _FORMATS[dtype]
    wide = elements.astype(np.float64)
    exponents = np.maximum(np.frexp(wide)[1] - 1, least)
    unit = np.ldexp(1.0, exponents - bits + 1)
    narrowed: Array = rounding(wide / unit) * unit
    return narrowed


def _held(whole: Array, dtype: str) -> Array:
    """Clamp whole numbers to an integer type's range; NaN becomes 0."""
    if dtype == "i1":
        return whole
    limits = np.iinfo(encode(0, dtype).dtype)
    wide = np.nan_to_num(whole.astype(np.float64), nan=0.0, posinf=limits.max, neginf=limits.min)
    return np.where(wide >= limits.max, limits.max, np.where(wide <= limits.min, limits.min, wide).astype(np.int64))


def _broadcast(op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Compute:
    """Repeat a number, or a tile along its axis of extent 1 (`vbrc`); `copy` is the same without such an axis."""
    return _elementwise(lambda value: value)(op, inputs, outputs)


def _range(op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Compute:
    """Fill a tile from an offset and a step along each axis (`varange`)."""
    first, *steps = inputs
    (output,) = outputs

    def compute(chip: OnChip, values: Values) -> None:
        target: View = values[output]
        numbers: Any = _value(chip, values, first, len(target.sizes), op)
        for axis, (size, step) in enumerate(zip(target.sizes, steps, strict=True)):
            along = np.arange(size).reshape(-1, *[1] * (len(target.sizes) - axis - 1))
            numbers = numbers + along * _value(chip, values, step, len(target.sizes), op)
        chip.write(target, numbers, op)

    return compute


# Along an axis --------------------------------------------------------------------------------------------------

combine: Mapping[str, np.ufunc] = {
    "sum": np.add,
    "add": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
}
"""The functions by which reductions and atomic stores combine two values."""


def _reduce(op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Compute:
    if len(outputs) == 2:
        return _find(op, inputs, outputs)
    function = _chosen(combine, op, "arith")
    (source,), (target,), axes = inputs, outputs, op.attributes["reduce_dims"]

    def compute(chip: OnChip, values: Values) -> None:
        elements = chip.read(values[source], op)
        for axis in axes:
            elements = _folded(function, elements, axis + 1)
        chip.write(values[target], elements, op)

    return compute


def _find(op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Compute:
    """Find the extreme along an axis and its first index."""
    find = _chosen({"max_with_index_left": np.argmax, "min_with_index_left": np.argmin}, op, "arith")
    (source,), (target, index), (axis,) = inputs, outputs, op.attributes["reduce_dims"]

    def compute(chip: OnChip, values: Values) -> None:
        elements = chip.read(values[source], op)
        found = np.expand_dims(find(elements, axis=axis + 1), axis + 1)
        chip.write(values[target], np.take_along_axis(elements, found, axis + 1), op)
        chip.write(values[index], found, op)

    return compute


def _folded(function: np.ufunc, elements: Array, axis: int) -> Array:
    """Fold the second half of an axis onto its first until one element is left (kept as an axis of extent 1)."""
    if function in (np.maximum, np.minimum):  # the order does not matter
        return np.asarray(function.reduce(elements, axis=axis, keepdims=True))
    elements = np.moveaxis(elements, axis, 0).copy()
    while (size := len(elements)) > 1:
        half = (size + 1) // 2
        function(elements[: size - half], elements[half:], out=elements[: size - half])
        elements = elements[:half]
    return np.moveaxis(elements, 0, axis)


def _cumulate(function: np.ufunc) -> Callable[[Op, Sequence[int], Sequence[int]], Compute]:
    def make(op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Compute:
        (source,), (target,), (axis,) = inputs, outputs, op.attributes["cum_dims"]
        if op.attributes.get("reverse"):
            raise UnknownOperation(f"the model does not support {place(op)} in reverse")

        def compute(chip: OnChip, values: Values) -> None:
            elements = chip.read(values[source], op)
            chip.write(values[target], function.accumulate(elements, axis=axis + 1, dtype=elements.dtype), op)

        return compute

    return make


# Moves -----------------------------------------------------------------------------------------------------------


def _moved(arrange: Callable[[Op, Sequence[Array]], Array]) -> Callable[[Op, Sequence[int], Sequence[int]], Compute]:
    """Return the maker of an operation that writes its operands' elements in another order."""

    def make(op: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Compute:
        (output,) = outputs

        def compute(chip: OnChip, values: Values) -> None:
            chip.write(values[output], arrange(op, [chip.read(values[n], op) for n in inputs]).copy(), op)

        return compute

    return make


def _transposed(op: Op, operands: Sequence[Array]) -> Array:
    return operands[0].transpose(0, *(axis + 1 for axis in op.attributes["permutation"]))


def _flipped(op: Op, operands: Sequence[Array]) -> Array:
    return np.flip(operands[0], op.attributes["flip_axis"] + 1)


def _sorted(op: Op, operands: Sequence[Array]) -> Array:
    axis = op.attributes["sort_axis"] + 1
    rising: Array = np.sort(operands[0], axis=axis)
    return np.flip(rising, axis) if op.attributes["descending"] else rising


def _gathered(op: Op, operands: Sequence[Array]) -> Array:
    """Gather along the last axis."""
    elements, indices = operands
    if ((indices < 0) | (indices >= elements.shape[-1])).any():
        raise OutOfBounds(f"{place(op)} picks element {indices.max()} of rows of {elements.shape[-1]}")
    return np.take_along_axis(elements, indices.astype(np.int64), -1)


def _interleaved(op: Op, operands: Sequence[Array]) -> Array:
    """Take one element of each operand in turn, along the last axis."""
    stacked = np.stack(operands, axis=-1)
    return stacked.reshape(*stacked.shape[:-2], -1)


def _deinterleaved(op: Op, operands: Sequence[Array]) -> Array:
    channels = {f"CHANNEL_{number}": number for number in range(op.attributes["channel_num"])}
    chosen = _chosen(channels, op, "index_mode")
    source = op.types[0]
    if isinstance(source, MemRef) and source.strides[-1] == len(channels) and not chosen:
        return operands[0]  # the view steps over the other channels already
    return operands[0][..., chosen :: len(channels)]


def _chosen(table: Mapping[str, Any], op: Op, attribute: str) -> Any:
    name = op.attributes[attribute]
    if name not in table:
        raise UnknownOperation(f"the model does not support {place(op)} with {attribute} {name}")
    return table[name]


_MAKERS: Mapping[str, Callable[[Op, Sequence[int], Sequence[int]], Compute]] = {
    "vadd": _elementwise(np.add),
    "vsub": _elementwise(np.subtract),
    "vmul": _elementwise(np.multiply),
    "vdiv": _divide,
    "vmax": _elementwise(np.maximum),
    "vmin": _elementwise(np.minimum),
    "vabs": _elementwise(np.abs),
    "vrelu": _elementwise(lambda value: np.maximum(value, 0)),
    "vexp": _elementwise(np.exp),
    "vln": _elementwise(np.log),
    "vsqrt": _elementwise(np.sqrt),
    "vand": _elementwise(np.bitwise_and),
    "vor": _elementwise(np.bitwise_or),
    "vxor": _elementwise(np.bitwise_xor),
    "vnot": _elementwise(np.invert),
    "vshl": _elementwise(np.left_shift),
    "vshr": _elementwise(np.right_shift),
    "vsel": _elementwise(np.where),
    "vcmp": _compare,
    "vcast": _cast,
    "vbrc": _broadcast,
    "copy": _broadcast,
    "varange": _range,
    "vreduce": _reduce,
    "vcumsum": _cumulate(np.add),
    "vcumprod": _cumulate(np.multiply),
    "vtranspose": _moved(_transposed),
    "vflip": _moved(_flipped),
    "vsort": _moved(_sorted),
    "vgather": _moved(_gathered),
    "vinterleave": _moved(_interleaved),
    "vdeinterleave": _moved(_deinterleaved),
}
