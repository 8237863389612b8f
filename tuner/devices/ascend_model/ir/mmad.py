"""`mmadL1`, a product of two tiles in L1, as the compiler's template for it carries it out.

The template cuts the depth into parts whose operands fit half of L0A and of L0B, so that one half is filled while the
cube unit multiplies from the other. (Read in the public `bishengir/lib/Template/lib/Cube/LocalMmad.cpp` of
AscendNPU-IR.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation, ceil

__all__ = [
    "FRACTAL",
    "HALVES",
    "NO_FLAG",
    "Action",
    "Flag",
    "Load",
    "LoadBias",
    "Mmad",
    "Multiply",
    "Part",
    "depth_parts",
    "fractal_width",
    "needs_barrier",
]

FRACTAL = 16
"""Rows of a fractal, the block of 16 rows of 32 bytes in which tiles lie in L1 and L0. An accumulator's are 16 x 16."""

_L0_BYTES = 64 << 10
"""Size of L0A and of L0B."""

NO_FLAG = -1
"""An event number that stands for none."""

HALVES = (-2, -3)
"""Event numbers of the halves of L0 that a product is handed by the one before; the compiler has none below -1."""

_EVENTS = 7
"""Events of a product that has any."""

_BLOCK_BYTES = 32

_KNOWN = {"operandSegmentSizes", "a_transpose", "b_transpose", "fixpipe_for_result_already_inserted"}


@dataclass(frozen=True, slots=True)
class Sync:
    """Events of one product: waits for both operands (MTE2 to MTE1), their release (MTE1 to MTE2), the trip of the loop
    around it, by which halves alternate, and the release of each half (M to MTE1)."""

    filled: tuple[int, int]
    emptied: tuple[int, int]
    trip: int
    halves: tuple[int, int]

    @classmethod
    def of(cls, numbers: Sequence[int], values: Sequence[Any]) -> Sync:
        """Look the events up by the numbers of their values. A product without any, whose operands stay in L1, gets
        `NO_FLAG` for all, as the compiler's last step gives it."""
        fill_a, fill_b, empty_a, empty_b, trip, one, other = [int(values[n]) for n in numbers] or [NO_FLAG] * _EVENTS
        return cls((fill_a, fill_b), (empty_a, empty_b), trip, (one, other))


@dataclass(frozen=True, slots=True)
class Mmad:
    """The operands of one `mmadL1`, as numbers of values. A transposed operand lies in L1 as its transpose."""

    a: int
    b: int
    out: int
    first: int
    """True if the accumulator starts from zero."""
    depth: int
    cols: int
    events: Sequence[int]
    """Empty, or the values that `Sync` has, in its order."""
    transposed: tuple[bool, bool]
    bias: int | None = None
    """A number for each column in L1, from which the accumulator starts instead."""

    @classmethod
    def of(cls, op: Op) -> Mmad:
        """Read the operation; raises `UnknownOperation` for a form that was never seen."""
        (a,), (b,), (first,), _, (depth,), (cols,), (out,), sync, unit_flag, bias = op.segments()
        if others := sorted(name for name, value in op.attributes.items() if value and name not in _KNOWN):
            raise UnknownOperation(f"the model does not support {op.name} with {', '.join(others)}")
        if unit_flag or len(sync) not in (0, _EVENTS):
            raise UnknownOperation(f"the model does not support {op.name} with these operands")
        kinds = [op.types[op.operands.index(number)] for number in (a, b, out)]
        if not all(isinstance(kind, MemRef) and len(kind.shape) == 4 for kind in kinds):
            raise UnknownOperation(f"the model does not support {op.name} of tiles that do not lie in fractals")
        transposed = bool(op.attributes.get("a_transpose")), bool(op.attributes.get("b_transpose"))
        return cls(a, b, out, first, depth, cols, sync, transposed, *bias)

    def extents(self, a: Sequence[int], b: Sequence[int]) -> tuple[int, int]:
        """Return the rows of A and the columns of B that lie in L1, by the sizes of their views."""
        rows = a[0] * a[3] if self.transposed[0] else a[1] * a[2]
        cols = b[1] * b[2] if self.transposed[1] else b[0] * b[3]
        return rows, cols

    def deepest(self, a: Sequence[int], b: Sequence[int]) -> int:
        """Return the depth that both operands have in L1."""
        deep_a = a[1] * a[2] if self.transposed[0] else a[0] * a[3]
        deep_b = b[0] * b[3] if self.transposed[1] else b[1] * b[2]
        return min(deep_a, deep_b)

    def course(
        self, values: Sequence[Any], rows: int, cols: int, item_bytes: int, *, handed: bool = False
    ) -> Iterator[Action]:
        """Yield what the template does, in order, for tiles with this many rows and columns in L1.

        `values` are the program's, by number. By its text, a product without events for the halves of L0 waits at its
        end until both are free. With `handed` it leaves them to the next product, `HALVES` being the events. Raises
        `ValueError` where the hardware would trap.
        """
        sync = Sync.of(self.events, values)
        own = [half for half, given in enumerate(sync.halves) if given == NO_FLAG]
        if handed:
            own, sync = [], replace(sync, halves=_handed(sync.halves))
        yield from (Flag("set", "M", "MTE1", half) for half in own)
        for part in depth_parts(int(values[self.depth]), rows, cols, item_bytes, sync.trip):
            free = part.half if part.half in own else sync.halves[part.half]
            yield Flag("wait", "M", "MTE1", free)
            for side in (0, 1):
                if part.start == 0 and sync.filled[side] != NO_FLAG:
                    yield Flag("wait", "MTE2", "MTE1", sync.filled[side])
                yield Load(side, part)
                if part.last and sync.emptied[side] != NO_FLAG:
                    yield Flag("set", "MTE1", "MTE2", sync.emptied[side])
            if self.bias is not None:
                yield LoadBias(self.bias)
            yield Flag("set", "MTE1", "M", free)
            yield Flag("wait", "MTE1", "M", free)
            yield Multiply(part)
            yield Flag("set", "M", "MTE1", free)
        yield from (Flag("wait", "M", "MTE1", half) for half in own)


def _handed(halves: tuple[int, int]) -> tuple[int, int]:
    one, other = (HALVES[half] if given == NO_FLAG else given for half, given in enumerate(halves))
    return one, other


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the depth: it begins at `start`, has `depth` products per sum and takes `stored` in L0, where it lies
    in this `half` (0 or 1) of `half_bytes`."""

    start: int
    depth: int
    stored: int
    half: int
    half_bytes: int
    last: bool


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag from one pipe to another, set or waited for."""

    verb: Literal["set", "wait"]
    source: str
    target: str
    event: int


@dataclass(frozen=True, slots=True)
class Load:
    """Part of an operand (0: A, 1: B) brought from L1 to L0A or L0B, by MTE1."""

    side: int
    part: Part


@dataclass(frozen=True, slots=True)
class LoadBias:
    """The bias, the number of its value, brought from L1 to the cube unit's table, by MTE1, for each part anew."""

    bias: int


@dataclass(frozen=True, slots=True)
class Multiply:
    """A product of two parts in L0, added to the accumulator, by M."""

    part: Part


Action = Flag | Load | LoadBias | Multiply


def needs_barrier(rows: int, cols: int) -> bool:
    """Return whether the template sets a barrier after each product: M does not keep two products apart that add to an
    accumulator of fewer than ten fractals."""
    return rows // FRACTAL * cols // FRACTAL < _FEW_FRACTALS


_FEW_FRACTALS = 10


def fractal_width(item_bytes: int) -> int:
    """Return the columns of a fractal: those of 32 bytes."""
    return _BLOCK_BYTES // item_bytes


def depth_parts(depth: int, rows: int, cols: int, item_bytes: int, trip: int) -> Iterator[Part]:
    """Yield the parts of a product of tiles with this many rows and columns in L1, in the given trip of its loop.

    Raises `ValueError` where the hardware would trap: no fractal fits L0, or there is no depth.
    """
    width = fractal_width(item_bytes)
    step = max(FRACTAL, width)
    side = ceil(max(rows, cols), step) * step
    half_bytes = _L0_BYTES // 2
    longest = half_bytes // item_bytes // side // step * step
    alternates = longest > 0
    if not alternates:
        half_bytes = _L0_BYTES
        longest = half_bytes // item_bytes // side // step * step
    if longest == 0 or depth <= 0:
        raise ValueError(f"a product of {rows} x {depth} x {cols} does not fit the operand buffers of the cube unit")
    count = ceil(depth, longest)
    for index in range(count):
        start = index * longest
        taken = min(longest, depth - start)
        half = ((trip if trip != NO_FLAG else 0) * count + index) % 2 if alternates else 0
        yield Part(start, taken, ceil(taken, width) * width, half, half_bytes, index == count - 1)
