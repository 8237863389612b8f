"""Loops over the elements of a tile, in which nothing but the scalar unit works and no trip needs another's results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewise.tuner.devices.ascend_model.ir.hivm import Block, MemRef, Op

__all__ = ["ElementLoop", "Level"]

_VIEWS = ("memref.reinterpret_cast",)


@dataclass(frozen=True, slots=True)
class Level:
    """One loop of a nest: its operation, the value that counts, and what it does before the loop inside it."""

    op: Op
    index: int
    operations: Sequence[Op]


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """A nest of loops, outermost first, whose bounds are known before it begins.

    It moves numbers between registers and memory, and computes with them. No loop carries a value, so trips depend on
    one another only through on-chip memory. Global memory is read and never written.
    """

    levels: Sequence[Level]

    @classmethod
    def of(cls, op: Op) -> ElementLoop | None:
        """Return the nest that begins with a loop, or None if it is none."""
        levels = list(_levels(op))
        if not any(_stores(level) for level in levels):
            return None
        made = {number for level in levels for number in _made(level)}
        if any(number in made for level in levels for number in level.op.operands):
            return None
        return cls(levels)

    @property
    def bounds(self) -> tuple[int, ...]:
        """The values that say where the loops begin, end, and how they step."""
        return tuple(number for level in self.levels for number in level.op.operands)


def _levels(op: Op) -> Iterator[Level]:
    """Yield a perfect nest's loops; nothing if an operation of it may do more than move and compute numbers."""
    found: list[Level] = []
    while True:
        if op.name != "scf.for" or op.results or len(op.operands) != 3:
            return
        (body,) = op.regions
        *before, last = _without_end(body)
        inner = last if last.name == "scf.for" else None
        operations = before if inner else [*before, last]
        if not all(_is_scalar(each) for each in operations):
            return
        found.append(Level(op, body.arguments[0], operations))
        if inner is None:
            yield from found
            return
        op = inner


def _without_end(body: Block) -> Sequence[Op]:
    """Return the operations of a loop's body but its `scf.yield`; the loop itself is never empty."""
    operations = [op for op in body.operations if op.name != "scf.yield"]
    return operations or list(body.operations)


def _is_scalar(op: Op) -> bool:
    if op.name in ("memref.load", *_VIEWS):
        return True
    if op.name == "memref.store":
        return _space(op, 1) != "gm"
    return op.name.startswith(("arith.", "math.")) and not isinstance(op.result_types[0], MemRef)


def _space(op: Op, operand: int) -> str:
    kind = op.types[operand]
    return kind.space if isinstance(kind, MemRef) else ""


def _made(level: Level) -> Iterator[int]:
    yield level.index
    for op in level.operations:
        yield from op.results


def _stores(level: Level) -> bool:
    return any(op.name == "memref.store" for op in level.operations)
