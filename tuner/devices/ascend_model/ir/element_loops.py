"""Loops over the elements of a tile, in which the scalar unit works alone and no trip needs another's results.

The compiler may put a store into such a loop that stores the same tile to the same place in every trip: a tile of
offsets goes to workspace wherever one of them is read.

Where the places of a store are chosen one by one, the loop stores an element of global memory in each trip: the scalar
unit puts a number into a cell of on-chip memory, and a transfer takes it from there, with flags between the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewise.tuner.devices.ascend_model.ir.hivm import Block, MemRef, Op

__all__ = ["ElementLoop", "Level", "ScatterLoop"]

_VIEWS = ("memref.reinterpret_cast",)

_ROWS = ("memref.subview", "memref.collapse_shape", "hivm.hir.load")
"""Operations that load a row in each trip, where the compiler loads a tile whose rows are chosen by a list."""

_REPEATED = ("memref_ext.alloc_workspace", "hivm.hir.pipe_barrier", "hivm.hir.store")
"""Operations that do the same in every trip if their operands are made outside the nest."""


@dataclass(frozen=True, slots=True)
class Level:
    """One loop of a nest: its operation, the value that counts, and what it does before the loop inside it.

    `repeated` are the operations that do the same in every trip, none of which `operations` has.
    """

    op: Op
    index: int
    operations: Sequence[Op]
    repeated: Sequence[Op] = ()


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """A nest of loops, outermost first, whose bounds are known before it begins.

    It moves numbers between registers and memory, and computes with them. No loop carries a value, so trips depend on
    one another only through on-chip memory. Global memory is read, and written by repeated operations alone. With
    `rows`, a trip may also load a row to the vector core's memory.
    """

    levels: Sequence[Level]

    @classmethod
    def of(cls, op: Op, *, rows: bool = False) -> ElementLoop | None:
        """Return the nest that begins with a loop, or None if it is none."""
        levels = list(_levels(op, rows))
        if not any(_stores(level) for level in levels):
            return None
        made = {number for level in levels for number in _made(level)}
        if any(number in made for level in levels for number in level.op.operands):
            return None
        same = {number for level in levels for op in level.repeated for number in op.results}
        if any(number in made - same for level in levels for op in level.repeated for number in _used(op)):
            return None
        return cls(levels)

    @property
    def bounds(self) -> tuple[int, ...]:
        """The values that say where the loops begin, end, and how they step."""
        return tuple(number for level in self.levels for number in level.op.operands)

    @property
    def repeated(self) -> Block:
        """The operations that do the same in every trip."""
        return Block((), tuple(op for level in self.levels for op in level.repeated))

    @property
    def stored(self) -> tuple[int, ...]:
        """The values that hold the tiles that repeated operations store."""
        return tuple(op.operands[0] for op in self.repeated.walk() if op.name == "hivm.hir.store")


@dataclass(frozen=True, slots=True)
class ScatterLoop:
    """A nest of loops, outermost first, whose innermost one stores an element of global memory in each trip, or in
    those that a condition chooses. What else it does is what an `ElementLoop` may do, but it writes to cells alone."""

    levels: Sequence[Level]

    @classmethod
    def of(cls, op: Op) -> ScatterLoop | None:
        """Return the nest that begins with a loop, or None if it is none."""
        levels: list[Level] = []
        made: set[int] = set()
        inner: Op | None = op
        while inner is not None:
            if (
                inner.name != "scf.for"
                or inner.results
                or len(inner.operands) != 3
                or made.intersection(inner.operands)
            ):
                return None
            *before, last = _without_end(inner.body)
            nested = last if last.name == "scf.for" else None
            levels.append(_split(inner, before if nested else [*before, last], made))
            if not all(_is_scalar(each) and each.name != "memref.store" for each in levels[-1].operations if nested):
                return None
            inner = nested
        return cls(levels) if _scatters(levels) else None

    @property
    def bounds(self) -> tuple[int, ...]:
        """The values that say where the loops begin, end, and how they step, and what is done in every trip or none."""
        conditions = (op.operands[0] for op in self._repeated.walk() if op.name == "scf.if")
        return (*(number for level in self.levels for number in level.op.operands), *conditions)

    @property
    def views(self) -> tuple[Op, ...]:
        """The operations that make the same view of memory in every trip."""
        return tuple(op for op in self._repeated.operations if op.results)

    @property
    def tiles(self) -> tuple[Op, ...]:
        """The operations that store the same tile in every trip."""
        return tuple(op for op in self._repeated.operations if not op.results)

    @property
    def stored(self) -> tuple[int, ...]:
        """The values that hold these tiles."""
        return tuple(op.operands[0] for op in self._repeated.walk() if op.name == "hivm.hir.store")

    @property
    def _repeated(self) -> Block:
        return Block((), tuple(op for level in self.levels for op in level.repeated))


def _split(op: Op, operations: Sequence[Op], made: set[int]) -> Level:
    """Return a loop with its operations that do the same in every trip apart; `made` are the others' results so far."""
    repeated: list[Op] = []
    rest: list[Op] = []
    made.add(op.body.arguments[0])
    for each in operations:
        if _may_repeat(each, _FOLDS) and each.name != "hivm.hir.pipe_barrier" and made.isdisjoint(_used(each)):
            repeated.append(each)
        elif each.name != "annotation.mark":
            rest.append(each)
            made.update(each.results)
    return Level(op, op.body.arguments[0], rest, repeated)


def _scatters(levels: Sequence[Level]) -> bool:
    """Return whether the innermost loop stores elements and does nothing but what belongs to that."""
    operations = levels[-1].operations
    inside = [each for op in operations for region in op.regions for each in region.walk()]
    repeats = any(level.repeated for level in levels)
    repeated = [each for level in levels for op in level.repeated for region in op.regions for each in region.walk()]
    made_inside = {number for each in repeated for number in each.results}
    return (
        any(each.name == "hivm.hir.store" for each in (*operations, *inside))
        and not any(each.name == "hivm.hir.store" and each.operands[0] in made_inside for each in repeated)
        and all(_is_scalar(each) or _belongs_to_store(each) for each in (*operations, *inside))
        and not any(each.name == "memref.load" for each in inside)
        and not (repeats and any(each.name == "hivm.hir.pipe_barrier" for each in operations))
    )


def _belongs_to_store(op: Op) -> bool:
    if op.name == "scf.if":
        no_else = all(each.name == "scf.yield" for region in op.regions[1:] for each in region.walk())
        return not op.results and no_else
    if op.name == "hivm.hir.store":
        return bool(op.attributes.get("atomic_kind", "none") == "none")
    return op.name in _STORING


def _levels(op: Op, rows: bool) -> Iterator[Level]:
    """Yield a perfect nest's loops; nothing if an operation of it may do more than move and compute numbers."""
    found: list[Level] = []
    while True:
        if op.name != "scf.for" or op.results or len(op.operands) != 3:
            return
        (body,) = op.regions
        *before, last = _without_end(body)
        inner = last if last.name == "scf.for" else None
        operations = before if inner else [*before, last]
        repeated = [each for each in operations if _may_repeat(each)]
        scalar = [each for each in operations if each not in repeated and each.name != "annotation.mark"]
        if not all(_is_scalar(each) or (rows and _moves_row(each)) for each in scalar):
            return
        found.append(Level(op, body.arguments[0], scalar, repeated))
        if inner is None:
            yield from found
            return
        op = inner


_FOLDS = ("memref.collapse_shape",)

_STORING = (
    *_FOLDS,
    "annotation.mark",
    "hivm.hir.pipe_barrier",
    "hivm.hir.pointer_cast",
    "hivm.hir.set_flag",
    "hivm.hir.wait_flag",
    "scf.yield",
)
"""Operations around the store of an element; an `scf.if` may have them too, and no more than a `scf.yield` for else."""


def _without_end(body: Block) -> Sequence[Op]:
    """Return the operations of a loop's body but its `scf.yield`; the loop itself is never empty."""
    operations = [op for op in body.operations if op.name != "scf.yield"]
    return operations or list(body.operations)


def _is_scalar(op: Op) -> bool:
    if op.name in ("memref.load", *_VIEWS):
        return True
    if op.name == "memref.store":
        return _space(op, 1) != "gm"
    return op.name.startswith(("arith.", "math.")) and not isinstance(op.result_type, MemRef)


def _moves_row(op: Op) -> bool:
    """Return whether an operation loads a row to the vector core's memory without filling up what is masked, or makes
    the views for that."""
    if op.name != "hivm.hir.load":
        return op.name in _ROWS
    filled = op.attributes.get("pad_mode") == "PadValue" or op.attributes.get("init_out_buffer")
    return _space(op, 1) == "ub" and not filled


def _may_repeat(op: Op, views: Sequence[str] = ()) -> bool:
    """Return whether an operation does the same in every trip if what it uses is the same; `views` are further ones."""
    if op.name == "scf.if":
        inside = [each for region in op.regions for each in _without_end(region)]
        return not op.results and all(_may_repeat(each, views) for each in inside)
    return op.name in (*_REPEATED, *views) and op.attributes.get("atomic_kind", "none") == "none"


def _used(op: Op) -> Iterator[int]:
    yield from op.operands
    for region in op.regions:
        for each in region.operations:
            yield from _used(each)


def _space(op: Op, operand: int) -> str:
    kind = op.types[operand]
    return kind.space if isinstance(kind, MemRef) else ""


def _made(level: Level) -> Iterator[int]:
    yield level.index
    for op in (*level.operations, *level.repeated):
        yield from op.results


def _stores(level: Level) -> bool:
    return any(op.name in ("memref.store", "hivm.hir.load") for op in level.operations)
