"""The memory of a core, byte by byte, for many programs at once.

On-chip memory is one byte array per program, of the part's size. A planned address is an index into it, so buffers
alias and overlap as on the chip. It starts as NaN in every float type. Global buffers are the caller's arrays, and
every transfer is checked against their ends. A read a little beyond them gives a *stray* value, whatever the memory
there may hold: compilers load first and select by a mask afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_NAMES

__all__ = [
    "BLOCK_BYTES",
    "POISON",
    "STRAYS",
    "Array",
    "Fault",
    "Global",
    "Layout",
    "OnChip",
    "OutOfBounds",
    "Unfilled",
    "View",
    "collapsed",
    "decode",
    "encode",
    "place",
]

Array = NDArray[Any]

BLOCK_BYTES = 32
"""Block size of on-chip memory: a transfer or vector operation starts on a block and fills its last one."""

POISON = 0xFF
"""The bytes of memory that was never written: a NaN in every float type, -1 in every integer."""

_STORAGE = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.uint16,  # numpy has none: the upper half of a float32
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
}
_STORAGES = {name: np.dtype(kind) for name, kind in _STORAGE.items()}


class Fault(ValueError):
    """An error that no correct compiled program makes; the message names the operation and its place."""


class OutOfBounds(Fault):
    """An access beyond the end of a buffer or of on-chip memory, or where no transfer can start."""


def place(op: Op) -> str:
    """Return an operation's label for messages: its name, and its number in the text of the compiled function."""
    return f"{op.name.removeprefix('hivm.hir.')} (operation {op.number})"


@dataclass(frozen=True, slots=True)
class View:
    """A memref at run time. `base` is the index of the function argument, or -1 on chip, where `address` is in bytes.

    `offset` (one for all programs, or one per program) and `strides` are in elements.
    """

    base: int
    address: int
    offset: Any
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def on_chip(self) -> bool:
        return self.base < 0

    @property
    def item_bits(self) -> int:
        return 1 if self.dtype == "i1" else _storage(self.dtype).itemsize * 8

    def elements(self) -> int:
        return math.prod(self.sizes)

    def span(self) -> tuple[int, int]:
        """Return the lowest and highest element, relative to `offset`."""
        steps = [(size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True)]
        return sum(min(0, step) for step in steps), sum(max(0, step) for step in steps)


def collapsed(view: View, groups: Sequence[Sequence[int]]) -> View:
    """Return a view with dimensions folded into one, group by group."""
    sizes = tuple(math.prod(view.sizes[i] for i in axes) for axes in groups)
    return replace(view, sizes=sizes, strides=tuple(_stride(view, axes) for axes in groups))


def _stride(view: View, axes: Sequence[int]) -> int:
    """Return the stride of dimensions folded into one: that of the innermost one longer than 1."""
    longer = [view.strides[i] for i in axes if view.sizes[i] != 1]
    return longer[-1] if longer else 1


def _storage(dtype: str) -> np.dtype[Any]:
    if dtype not in _STORAGES:
        raise UnknownOperation(f"the model does not know the element type {dtype}")
    return _STORAGES[dtype]


def decode(stored: Array, dtype: str) -> Array:
    """Return values to compute with: as stored, except bfloat16 as float32."""
    if dtype != "bf16":
        return stored
    return (stored.astype(np.uint32) << 16).view(np.float32)


def encode(values: Any, dtype: str) -> Any:
    """Return values as they are stored: floats rounded to the nearest even, integers wrapped."""
    if dtype != "bf16":
        return np.asarray(values).astype(_storage(dtype), copy=False)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


class Layout:
    """The on-chip memories of one core, one after the other in one range of bytes: `starts` by space, and `size`."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        """Lay out memories of these sizes in bytes, by space, each a multiple of a block."""
        self.starts: dict[str, int] = {}
        self.size = 0
        for space, size in sizes.items():
            self.starts[space] = self.size
            self.size += size
        self._sizes = sizes

    def require(self, view: View, space: str, op: Op) -> None:
        """Raise `Fault` unless the view lies in this memory, or `OutOfBounds` if it leaves it."""
        if not view.on_chip:
            raise Fault(f"{place(op)} uses global memory as if it were on chip")
        low, high = view.span()
        item, offset = view.item_bits // 8, _whole(view.offset, op)
        start = self.starts.get(space, 0)
        first = view.address - start + (offset + low) * item
        last = view.address - start + (offset + high + 1) * item
        size = self._sizes.get(space, 0)
        if first < 0 or last > size:
            name = ON_CHIP_NAMES[space]
            raise OutOfBounds(f"{place(op)} uses bytes {first} to {last} of {name}, where {size} are planned")

    def spot(self, byte: int) -> str:
        """Return a byte's label for messages."""
        space = max((space for space in self.starts if self.starts[space] <= byte), key=self.starts.__getitem__)
        at = byte - self.starts[space]
        return f"on-chip byte {at}" if space == "ub" else f"byte {at} of {ON_CHIP_NAMES[space]}"


class OnChip:
    """The on-chip memories of `programs` cores, `size` bytes each."""

    def __init__(self, programs: int, size: int) -> None:
        self._bytes: Array = np.full((programs, size), POISON, np.uint8)

    def take(self, programs: Array) -> OnChip:
        """Return a copy of the memories of some programs."""
        part = OnChip(0, 0)
        part._bytes = self._bytes[programs]
        return part

    def stored(self, view: View, op: Op) -> Array:
        """Return the view's own memory, writable, with one row per program."""
        item = _storage(view.dtype)
        return self._window(view, op, item, view.sizes, view.strides, self._start(view, op))

    def read(self, view: View, op: Op) -> Array:
        if view.dtype == "i1":
            packed = self._packed(view, op)
            bits = np.unpackbits(packed, axis=-1, bitorder="little")[..., : _width(view)]
            return bits.astype(bool).reshape(packed.shape[0], *view.sizes)
        return decode(self.stored(view, op), view.dtype)

    def write(self, view: View, values: Any, op: Op) -> None:
        if view.dtype == "i1":
            packed = self._packed(view, op)
            bits = np.broadcast_to(values, (packed.shape[0], *view.sizes)).reshape(*packed.shape[:-1], _width(view))
            packed[...] = np.packbits(bits, axis=-1, bitorder="little")
        else:
            self.stored(view, op)[...] = encode(values, view.dtype)

    def spoil(self, view: View, op: Op) -> None:
        """Fill an operation's scratch space with poison, so that code which relies on its contents shows NaN."""
        if view.elements():
            self._window(view, op, np.dtype(np.uint8), (_bytes(view),), (1,), self._start(view, op))[...] = POISON

    def fill_block(self, view: View, value: Any, op: Op) -> None:
        """Set the rest of the 32-byte block in which each row of the view ends, as a transfer inward does."""
        item = _storage(view.dtype)
        if not view.elements():
            return
        rows, width, strides = _runs(view)
        end = self._start(view, op) + width * item.itemsize
        spare = -end % BLOCK_BYTES
        if spare and all(step * item.itemsize % BLOCK_BYTES == 0 for step in strides):
            rest = self._window(view, op, item, (*rows, spare // item.itemsize), (*strides, 1), end)
            rest[...] = encode(value, view.dtype)

    def _packed(self, view: View, op: Op) -> Array:
        """Return the bytes that hold a view of bits; each row starts on a byte."""
        *outer, _ = view.strides or (1,)
        start = view.address * 8 + _whole(view.offset, op)
        if (view.strides and view.strides[-1] != 1 and view.sizes[-1] > 1) or any(n % 8 for n in [start, *outer]):
            raise UnknownOperation(f"the model does not support the layout of the masks of {place(op)}")
        sizes = (*view.sizes[:-1], math.ceil(_width(view) / 8))
        strides = (*(stride // 8 for stride in outer), 1)
        return self._window(view, op, np.dtype(np.uint8), sizes, strides, start // 8)

    def _start(self, view: View, op: Op) -> int:
        return view.address + _whole(view.offset, op) * view.item_bits // 8

    def _window(
        self, view: View, op: Op, item: np.dtype[Any], sizes: tuple[int, ...], strides: tuple[int, ...], start: int
    ) -> Array:
        programs, size = self._bytes.shape
        low, high = View(-1, 0, 0, sizes, strides, view.dtype).span()
        first, last = start + low * item.itemsize, start + (high + 1) * item.itemsize
        if first < 0 or last > size:
            raise OutOfBounds(f"{place(op)} uses bytes {first} to {last} of on-chip memory, which has {size}")
        if start % item.itemsize:
            raise OutOfBounds(f"{place(op)} uses {view.dtype} at byte {start} of on-chip memory, which is not aligned")
        steps = (size, *(stride * item.itemsize for stride in strides))
        return np.ndarray((programs, *sizes), item, self._bytes, start, steps)


def _bytes(view: View) -> int:
    return math.ceil((view.span()[1] + 1) * view.item_bits / 8)


def _width(view: View) -> int:
    return view.sizes[-1] if view.sizes else 1


def _runs(view: View) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Return the view as contiguous runs: their number along each outer axis, the elements of one, their strides."""
    width, axis = 1, len(view.sizes)
    while axis and (view.sizes[axis - 1] == 1 or view.strides[axis - 1] == width):
        axis -= 1
        width *= view.sizes[axis]
    return view.sizes[:axis], width, view.strides[:axis]


def _whole(offset: Any, op: Op) -> int:
    if isinstance(offset, np.ndarray):
        raise UnknownOperation(f"the model does not support on-chip addresses that depend on data, as in {place(op)}")
    return int(offset)


STRAYS = (0xFF, 0x7B)
"""Bytes of stray values: first NaN (-1 in integers), then a large finite number in every type. A program whose results
are the same with both does not use them."""

STRAY_BYTES = 64 * 1024
"""Distance beyond a buffer's ends up to which a read gives stray values: the guards of buffers on a chip."""


class Global:
    """One global buffer: the bytes between its guards."""

    def __init__(self, name: str, data: Array) -> None:
        self.name = name
        self._bytes = data.reshape(-1).view(np.uint8)

    def fill(self, byte: int) -> None:
        self._bytes[...] = byte

    def pieces(self, view: View, programs: int, op: Op) -> Iterator[tuple[slice, Array]]:
        """Yield the programs' windows on the buffer, in program order: many at once where they are evenly spaced.

        Raises `OutOfBounds` if a window reaches beyond the buffer.
        """
        if not view.elements():
            return
        self.require(view, op)
        item, (low, high) = _storage(view.dtype), view.span()
        strides = tuple(stride * item.itemsize for stride in view.strides)
        offsets = np.broadcast_to(view.offset, programs).tolist()
        for part in _evenly_spaced(offsets, high - low + 1):
            first, *others = offsets[part]
            step = (others[0] - first) * item.itemsize if others else 0
            yield part, self._at(first, item, (1 + len(others), *view.sizes), (step, *strides))

    def stray(self, view: View, op: Op) -> str:
        """Describe a read that begins or ends within `STRAY_BYTES` beyond the buffer; empty if it stays inside."""
        low, high = view.span()
        first, last = int(np.min(view.offset)) + low, int(np.max(view.offset)) + high
        size, beyond = self.elements(view.dtype), STRAY_BYTES // _storage(view.dtype).itemsize
        if not view.elements() or (first >= 0 and last < size) or first < -beyond or last >= size + beyond:
            return ""
        return self._outside(view, op, first if first < 0 else last)

    def with_strays(self, view: View, programs: int, byte: int) -> Array:
        """Return the programs' elements of a view that reaches beyond the buffer, with stray values made of `byte`."""
        item = _storage(view.dtype)
        at = np.broadcast_to(view.offset, programs).reshape(programs, *[1] * len(view.sizes)).astype(np.int64)
        for axis, (size, stride) in enumerate(zip(view.sizes, view.strides, strict=True)):
            at = at + (np.arange(size) * stride).reshape(-1, *[1] * (len(view.sizes) - axis - 1))
        held = self.held(view.dtype)
        inside = (at >= 0) & (at < len(held))
        stray = np.full(item.itemsize, byte, np.uint8).view(item)[0]
        return np.where(inside, held[np.clip(at, 0, len(held) - 1)], stray)

    def held(self, dtype: str) -> Array:
        """Return the whole buffer as elements of a type."""
        item = _storage(dtype)
        return self._bytes[: self.elements(dtype) * item.itemsize].view(item)

    def put(self, at: Array, values: Array, dtype: str) -> None:
        """Store each value to the element with its number in `at`, all of which lie inside."""
        self.held(dtype)[at] = values

    def elements(self, dtype: str) -> int:
        return self._bytes.size // _storage(dtype).itemsize

    def _at(self, offset: int, item: np.dtype[Any], sizes: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        return np.ndarray(sizes, item, self._bytes, offset * item.itemsize, strides)

    def require(self, view: View, op: Op) -> None:
        """Raise `OutOfBounds` if a window reaches beyond the buffer."""
        low, high = view.span()
        first, last = int(np.min(view.offset)) + low, int(np.max(view.offset)) + high
        size = self.elements(view.dtype)
        if first < 0 or last >= size:
            raise OutOfBounds(self._outside(view, op, first if first < 0 else last))

    def _outside(self, view: View, op: Op, element: int) -> str:
        return f"{place(op)} uses element {element} of {self.name}, which has {self.elements(view.dtype)}"


def _evenly_spaced(offsets: Sequence[int], width: int) -> Iterator[slice]:
    """Yield slices of the offsets in which neighbours are equally far apart: all of them, or parts in which windows of
    this width do not overlap."""
    steps = [after - before for before, after in pairwise(offsets)]
    if len(set(steps)) < 2:
        yield slice(0, len(offsets))
        return
    start = 0
    while start < len(offsets):
        stop = start + 1
        if start < len(steps) and abs(steps[start]) >= width:
            while stop <= len(steps) and steps[stop - 1] == steps[start]:
                stop += 1
        yield slice(start, stop)
        start = stop


class Unfilled(Global):
    """A global buffer of which only the ends are known: reads give zeros, and writes are lost."""

    def __init__(self, name: str, size: int) -> None:
        """Stand for a buffer of `size` bytes."""
        self.name, self._size = name, size

    def fill(self, byte: int) -> None:
        """Do nothing: there is no content."""

    def pieces(self, view: View, programs: int, op: Op) -> Iterator[tuple[slice, Array]]:
        if view.elements():
            self.require(view, op)
            yield slice(0, programs), np.zeros((programs, *view.sizes), _storage(view.dtype))

    def with_strays(self, view: View, programs: int, byte: int) -> Array:
        return np.zeros((programs, *view.sizes), _storage(view.dtype))

    def put(self, at: Array, values: Array, dtype: str) -> None:
        """Do nothing: the values are lost."""

    def elements(self, dtype: str) -> int:
        return self._size // _storage(dtype).itemsize
