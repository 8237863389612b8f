"""Where the cores of a mixed kernel meet: workspace in global memory, and flags from one core to another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewise.tuner.devices.ascend_model.ir.hivm import DYNAMIC, Function, MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation

__all__ = ["CROSS_FLAGS", "Allocation", "Area", "CrossFlag", "allocated", "areas", "cross_flag"]

CROSS_FLAGS = ("hivm.hir.sync_block_set", "hivm.hir.sync_block_wait")
"""Operations that set a flag for another core, and wait for one."""

_ALLOCATE = "memref_ext.alloc_workspace"
_KEPT = 16
"""Functions whose workspace is kept, as a launch is timed by many clocks."""

_KNOWN = {"operandSegmentSizes", "pipe", "static_flag_id", "tcore_type", "tpipe"}


@dataclass(frozen=True, slots=True)
class Allocation:
    """A buffer in a program's own workspace, from byte `start` on."""

    start: int
    kind: MemRef

    @property
    def item_bytes(self) -> int:
        return self.kind.item_bits // 8

    @property
    def end(self) -> int:
        return self.start + math.prod(self.kind.shape) * self.item_bytes

    @classmethod
    def of(cls, op: Op, function: Function) -> Allocation:
        """Read `alloc_workspace`; raises `UnknownOperation` if size or place are known at run time only."""
        _, sizes, offsets = op.segments()
        kind = op.result_type
        constants = _constants(function)
        if not isinstance(kind, MemRef) or sizes or DYNAMIC in kind.shape or any(n not in constants for n in offsets):
            raise UnknownOperation(f"the model does not support {op.name} of a size known at run time only")
        return cls(sum(constants[number] for number in offsets), kind)


@lru_cache(maxsize=_KEPT)
def _constants(function: Function) -> Mapping[int, Any]:
    """Return the constants of all halves by the number of their value."""
    return {op.result: op.attributes["value"] for op in function.walk() if op.name == "arith.constant"}


@dataclass(frozen=True, slots=True)
class Area:
    """A stretch of a program's workspace that is allocated with elements of one size, in bytes."""

    start: int
    size: int
    item_bytes: int

    def holds(self, made: Allocation) -> bool:
        return self.start <= made.start < self.start + self.size


@lru_cache(maxsize=_KEPT)
def areas(function: Function) -> Sequence[Area]:
    """Return the areas of a mixed kernel's workspace: allocations that overlap share one.

    Raises `UnknownOperation` if elements of different sizes do.
    """
    found: list[Area] = []
    allocations = {Allocation.of(op, function) for op in function.walk() if op.name == _ALLOCATE}
    for each in sorted(allocations, key=lambda each: (each.start, each.end)):
        last = found[-1] if found else Area(0, 0, 0)
        if each.start >= last.start + last.size:
            found.append(Area(each.start, each.end - each.start, each.item_bytes))
        elif each.item_bytes == last.item_bytes:
            found[-1] = Area(last.start, max(last.size, each.end - last.start), last.item_bytes)
        else:
            raise UnknownOperation("the model does not support workspace that has elements of different sizes")
    return found


def allocated(op: Op, function: Function) -> tuple[int, Area, Allocation]:
    """Return the number of the area that holds the result of `alloc_workspace`, that area, and the allocation."""
    made = Allocation.of(op, function)
    return next((at, area, made) for at, area in enumerate(areas(function)) if area.holds(made))


@dataclass(frozen=True, slots=True)
class CrossFlag:
    """A flag that a core sets once a pipe's earlier operations are done, or at which a pipe of it waits."""

    pipe: str
    fixed: int | None
    operand: int

    def number(self, values: Sequence[Any]) -> int:
        """Return the flag's number, by a program's values."""
        return self.fixed if self.fixed is not None else int(values[self.operand])


def cross_flag(op: Op, function: Function) -> CrossFlag:
    """Read `sync_block_set` or `sync_block_wait` of one core's function."""
    if others := sorted(op.attributes.keys() - _KNOWN):
        raise UnknownOperation(f"the model does not support {op.name} with {', '.join(others)}")
    if op.attributes["tcore_type"] != function.core.upper():
        raise UnknownOperation(f"the model does not support {op.name} of a {op.attributes['tcore_type']} core there")
    pipe = op.attributes["tpipe" if op.name == "hivm.hir.sync_block_set" else "pipe"]
    fixed = op.attributes.get("static_flag_id")
    return CrossFlag(pipe, fixed, op.operands[0] if op.operands else -1)
