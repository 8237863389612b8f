"""A compiled function as the rules read it: loops around an operation, views back to their memory, known numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewise.tuner.devices.ascend_model.ir.hivm import DYNAMIC, Block, Function, MemRef, Op, index_plan
from tilewise.tuner.devices.ascend_model.ir.scalars import scalar_function
from tilewise.tuner.devices.ascend_model.ir.source_lines import Place
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.devices.ascend_model.report.located_launch import LocatedFunction, LocatedLaunch

__all__ = ["Code", "written"]

_VIEWS = frozenset(
    f"memref.{name}" for name in ("subview", "cast", "collapse_shape", "expand_shape", "reinterpret_cast")
) | {"hivm.hir.bitcast"}


class Code:
    """One function of a launch, with what is known of its values when it is launched."""

    def __init__(self, located: LocatedFunction, launch: LocatedLaunch) -> None:
        self.function: Function = located.function
        self._places = located.places
        self._around: dict[int, tuple[Op, ...]] = {}
        self._definitions: dict[int, Op] = {}
        self._carried: dict[int, tuple[int, ...]] = {}
        self._writers: dict[int, list[Op]] = {}
        self._enter(self.function.body, ())
        self._numbers = _scalars(self.function, launch)
        self._names = _names(self.function, launch)
        for op in self.function.body.walk():
            for target in written(op):
                self._writers.setdefault(self.root(target), []).append(op)

    def _enter(self, block: Block, around: tuple[Op, ...]) -> None:
        for op in block.operations:
            self._around[op.number] = around
            self._definitions.update(dict.fromkeys(op.results, op))
            if op.name == "scf.for":
                (body,) = op.regions
                for argument, *sources in zip(body.arguments[1:], op.operands[3:], body.yielded(), strict=True):
                    self._carried[argument] = tuple(sources)
                self._carried.update(
                    {result: (source,) for result, source in zip(op.results, body.yielded(), strict=True)}
                )
            for region in op.regions:
                self._enter(region, (*around, op))

    def walk(self) -> Iterator[Op]:
        return self.function.body.walk()

    def place(self, op: Op) -> Place | None:
        """Return the source line of an operation; of one without a line, that of the first operation inside."""
        inner = (self._places[each.number - 1] for region in op.regions for each in region.walk())
        return self._places[op.number - 1] or next((place for place in inner if place), None)

    def loops(self, op: Op) -> list[Op]:
        """Return the loops around an operation, outermost first."""
        return [each for each in self._around[op.number] if each.name in ("scf.for", "scf.while")]

    def definition(self, number: int) -> Op | None:
        return self._definitions.get(number)

    def root(self, number: int) -> int:
        """Return the memory that a view is of: an argument, or the value of a buffer's allocation. A buffer that a loop
        carries is the one it begins with."""
        while True:
            op = self._definitions.get(number)
            if op is not None and op.name in _VIEWS:
                number = op.operands[0]
            elif number in self._carried:
                number = self._carried[number][0]
            else:
                return number

    def views(self, number: int) -> Iterator[Op]:
        """Yield the operations that make a view of its memory, the last one first."""
        while (op := self._definitions.get(number)) is not None and op.name in _VIEWS:
            yield op
            number = op.operands[0]

    def argument(self, number: int) -> str:
        """Return the name of the kernel's buffer that a view is of; empty if it is none."""
        return self._names.get(self.root(number), "")

    def writers(self, root: int) -> Sequence[Op]:
        return self._writers.get(root, [])

    def is_copied_to_workspace(self, load: Op) -> bool:
        """Return whether the buffer that is loaded is stored to workspace, where a cube core takes it up, as it is or
        after a select of what a mask lets through."""
        held = {self.root(load.operands[1])}
        for op in self.walk():
            if op.name == "hivm.hir.vsel" and not held.isdisjoint(map(self.root, op.operands)):
                held.update(map(self.root, written(op)))
        stores = (op for op in self.walk() if op.name == "hivm.hir.store" and self.root(op.operands[0]) in held)
        targets = (self.definition(self.root(op.operands[1])) for op in stores)
        return any(target is not None and target.name == "memref_ext.alloc_workspace" for target in targets)

    def number(self, value: int) -> Any:
        """Return a scalar's value, None if it depends on the program, a loop or memory."""
        if value not in self._numbers:
            op = self._definitions.get(value)
            self._numbers[value] = None if op is None else self._computed(op)
        return self._numbers[value]

    def _computed(self, op: Op) -> Any:
        if op.name == "arith.constant":
            return op.attributes["value"]
        if not op.name.startswith("arith."):
            return None
        operands = [self.number(value) for value in op.operands]
        if any(operand is None for operand in operands):
            return None
        try:
            return scalar_function(op)(*operands)
        except (UnknownOperation, ArithmeticError, ValueError):
            return None

    def trips(self, loop: Op) -> int | None:
        """Return the iterations of a loop, None if they are not known."""
        if loop.name != "scf.for":
            return None
        low, high, step = (self.number(value) for value in loop.operands[:3])
        return None if None in (low, high, step) else len(range(low, high, step))

    def strides(self, number: int) -> list[int | None]:
        """Return a view's strides in elements, None for those that are not known."""
        op = self._definitions.get(number)
        if op is None:
            return []
        if op.name == "memref.reinterpret_cast":
            return [self.number(value) if known is None else known for known, value in index_plan(op)[2]]
        kind = op.result_type
        assert isinstance(kind, MemRef), "only memory has strides"
        source = op.types[0]
        steps = op.name in ("memref.subview", "memref.cast")
        if steps and isinstance(source, MemRef) and len(source.shape) == len(kind.shape):
            return self.strides(op.operands[0])
        return [None if stride == DYNAMIC else stride for stride in kind.strides]

    def slice(self, number: int) -> list[Op]:
        """Return the operations that a value is computed from, through memory on chip too, nearest first."""
        found: dict[int, Op] = {}
        values, seen = [number], set()
        while values:
            value = values.pop(0)
            if value in seen:
                continue
            seen.add(value)
            values += self._carried.get(value, ())
            op = self._definitions.get(value)
            sources = [*self.writers(self.root(value))] if self._on_chip(value) else []
            for each in [op, *sources] if op is not None else sources:
                if each.number not in found and each.name not in ("scf.for", "scf.if", "scf.while"):
                    found[each.number] = each
                    values += each.operands
        return list(found.values())

    def _on_chip(self, value: int) -> bool:
        op = self._definitions.get(self.root(value))
        return op is not None and op.name == "hivm.hir.pointer_cast"


def written(op: Op) -> tuple[int, ...]:
    """Return the memory that an operation writes."""
    if op.name == "memref.store":
        return op.operands[1:2]
    if not op.name.startswith("hivm.hir.") or op.name in _VIEWS or op.results or not op.operands:
        return ()
    if op.name in ("hivm.hir.vbrc", "hivm.hir.varange"):
        return op.operands[1:2] if op.name == "hivm.hir.vbrc" else op.operands[:1]
    groups = op.segments() if "operandSegmentSizes" in op.attributes else (op.operands[:-1], op.operands[-1:])
    targets = groups[1] if len(groups) > 1 else ()
    return tuple(number for number in targets if isinstance(op.types[op.operands.index(number)], MemRef))


def _scalars(function: Function, launch: LocatedLaunch) -> dict[int, Any]:
    """Return the numbers that the function is launched with: the kernel's scalars, then the grid."""
    given = iter([*launch.scalars, *[*launch.grid, 1, 1][:3]])
    inside = [number for number, kind in function.arguments[1:] if not isinstance(kind, MemRef)]
    return dict(zip(inside, given, strict=True))


def _names(function: Function, launch: LocatedLaunch) -> dict[int, str]:
    """Return the names of the buffers, which follow the compiler's own arguments."""
    inside = [number for number, kind in function.arguments if isinstance(kind, MemRef)]
    return dict(zip(inside[len(inside) - len(launch.buffers) :], launch.buffers, strict=True))
