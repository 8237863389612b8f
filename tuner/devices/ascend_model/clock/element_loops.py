"""The time of loops over the elements of a tile beside a cube core, for all trips at once.

Trips that do not wait for one another keep the scalar unit busy by their number, whatever their addresses are. Of
global memory, neighbours come through the unit's data cache: it waits for a line once, and a tile's elements fill whole
lines along one of its axes. What does the same in every trip is timed for two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tilewise.tuner.devices.ascend_model.clock.core import CACHE_LINE, Core
from tilewise.tuner.devices.ascend_model.ir.element_loops import ElementLoop
from tilewise.tuner.devices.ascend_model.ir.hivm import Block, MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, DependsOnContents
from tilewise.tuner.hardware.ascend_costs import Costs

__all__ = ["element_loop"]

_Step = Callable[[list[Any], Core], None]


class _Clock(Protocol):
    """The program's clock, as far as a loop needs it."""

    costs: Costs

    def scalar_cycles(self, op: Op) -> float: ...

    def compile(self, block: Block) -> Sequence[_Step]: ...


def element_loop(clock: _Clock, found: ElementLoop) -> _Step:
    """Compile a nest of loops."""
    repeated = [clock.compile(Block((), tuple(level.repeated))) for level in found.levels]
    each = [clock.costs["iteration"] + sum(_cycles(clock, op) for op in level.operations) for level in found.levels]
    sizes = [sum(_bytes(op) for op in level.operations) for level in found.levels]
    reads = [_reads(level.operations) for level in found.levels]

    def loop(values: list[Any], core: Core) -> None:
        trips, cycles = 1, 0.0
        for level, cost, size, outside, same in zip(found.levels, each, sizes, reads, repeated, strict=True):
            bounds = [values[number] for number in level.op.operands]
            if any(bound is UNKNOWN for bound in bounds):
                raise DependsOnContents(f"the model cannot follow {level.op.name} where it depends on tensor contents")
            trips *= len(range(*bounds))
            cycles += trips * cost
            core.elements += trips * size
            for number, read in outside:
                core.reads[values[number].base] += trips * read
            _repeat(same, values, core, trips)
        core.scalar(cycles)

    return loop


def _repeat(steps: Sequence[_Step], values: list[Any], core: Core, trips: int) -> None:
    """Run the same steps in every trip: two of them, the second of which stands for those that follow."""
    times, counts = core.times(), core.counts()
    for _ in range(min(trips, 2) if steps else 0):
        times, counts = core.times(), core.counts()
        for step in steps:
            step(values, core)
    if steps and trips > 2:
        core.advance(_change(times, core.times()), _change(counts, core.counts()), trips - 2)


def _change(before: Sequence[float], after: Sequence[float]) -> list[float]:
    return [new - old for old, new in zip(before, after, strict=True)]


def _cycles(clock: _Clock, op: Op) -> float:
    if op.name == "memref.reinterpret_cast":
        return 0.0
    if op.name not in ("memref.load", "memref.store"):
        return clock.scalar_cycles(op)
    lines = _bytes(op) / CACHE_LINE if _memory(op).space == "gm" else 0.0
    return clock.costs["element_access"] + lines * clock.costs["element_line"]


def _bytes(op: Op) -> int:
    return -(-_memory(op).item_bits // 8) if op.name in ("memref.load", "memref.store") else 0


def _memory(op: Op) -> MemRef:
    kind = op.types[1 if op.name == "memref.store" else 0]
    assert isinstance(kind, MemRef)
    return kind


def _reads(operations: Any) -> list[tuple[int, int]]:
    """Return the buffers of global memory that are read, each by the value that held it before the nest, and the bytes
    of one element."""
    sources = {op.result: op.operands[0] for op in operations if op.name == "memref.reinterpret_cast"}
    loads = [op for op in operations if op.name == "memref.load" and _memory(op).space == "gm"]
    return [(sources.get(op.operands[0], op.operands[0]), _bytes(op)) for op in loads]
