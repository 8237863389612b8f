"""HIVM, the scheduled code that the Ascend compiler prints, as a small tree of our own.

The text is MLIR's generic form after `--lower-affine`, parsed by xdsl. The tree keeps what timing and execution need:
operations on numbered values, plain Python attributes, and memref types.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal

__all__ = ["DYNAMIC", "Block", "Function", "IndexPlan", "MemRef", "Op", "index_plan", "kept_dimensions", "parse"]

DYNAMIC = -(2**63)
"""MLIR's marker for "known only at run time" in shapes, strides and static index lists."""

_BITS = {"f64": 64, "i64": 64, "f32": 32, "i32": 32, "f16": 16, "bf16": 16, "i16": 16, "i8": 8, "i1": 1, "index": 64}


@dataclass(frozen=True, slots=True)
class MemRef:
    """A memref type: `strides` are in elements, `space` is `gm`, `ub`, `cbuf` (L1) or `cc` (L0C)."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    space: str

    @property
    def item_bits(self) -> int:
        """Bits per element on chip, where the results of comparisons (i1) are packed."""
        if self.dtype not in _BITS:
            raise ValueError(f"the model does not know the element type {self.dtype}")
        return _BITS[self.dtype]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation; operands and results are value numbers, `types` are the operands' types (text if scalar).

    `number` counts operations in text order, from 1.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    attributes: Mapping[str, Any]
    types: tuple[MemRef | str, ...]
    result_types: tuple[MemRef | str, ...]
    regions: tuple[Block, ...] = ()
    number: int = 0

    @property
    def operand(self) -> int:
        """The number of the only operand."""
        (operand,) = self.operands
        return operand

    @property
    def result(self) -> int:
        """The number of the only result."""
        (result,) = self.results
        return result

    @property
    def result_type(self) -> MemRef | str:
        """The type of the only result."""
        (kind,) = self.result_types
        return kind

    @property
    def body(self) -> Block:
        """The only region."""
        (body,) = self.regions
        return body

    def segments(self) -> tuple[tuple[int, ...], ...]:
        """Return the operands grouped by `operandSegmentSizes`."""
        groups, start = [], 0
        for size in self.attributes["operandSegmentSizes"]:
            groups.append(self.operands[start : start + size])
            start += size
        return tuple(groups)


@dataclass(frozen=True, slots=True)
class Block:
    arguments: tuple[int, ...]
    operations: tuple[Op, ...]

    def yielded(self) -> tuple[int, ...]:
        """Return the values that the block yields at its end."""
        last = self.operations[-1] if self.operations else None
        return last.operands if last is not None and last.name == "scf.yield" else ()

    def walk(self) -> Iterator[Op]:
        for op in self.operations:
            yield op
            for region in op.regions:
                yield from region.walk()


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """The kernel; `values` is the count of value numbers in use, `core` the kind of core that it is compiled for.

    A mixed kernel is its cube core's function, and `vector` the one that two vector cores run beside it. Both take the
    same arguments. Operations and values are numbered through both. Functions are compared by identity, so that what is
    found out about one can be kept.
    """

    name: str
    arguments: tuple[tuple[int, MemRef | str], ...]
    body: Block
    values: int
    core: Literal["vector", "cube"] = "vector"
    vector: Function | None = None

    def halves(self) -> tuple[Function, ...]:
        """Return the functions that run side by side: this one, and that of its vector cores if it has them."""
        return (self,) if self.vector is None else (self, self.vector)

    def walk(self) -> Iterator[Op]:
        """Yield all operations of all halves, in text order."""
        operations = [op for half in self.halves() for op in half.body.walk()]
        yield from sorted(operations, key=lambda op: op.number) if self.vector else operations

    def planned_bytes(self, space: str) -> int:
        """Return the bytes of an on-chip memory from its start to the end of the last buffer planned there."""
        constants = {op.result: op.attributes["value"] for op in self.walk() if op.name == "arith.constant"}
        ends = [0]
        for op in self.walk():
            if op.name == "hivm.hir.pointer_cast":
                kind = op.result_type
                assert isinstance(kind, MemRef)
                if kind.space == space:
                    size = math.ceil(math.prod(kind.shape) * kind.item_bits / 8)
                    ends += [constants[address] + size for address in op.segments()[0]]
        return max(ends)

    def multi_buffered(self) -> bool:
        """Return whether any buffer has more than one address."""
        return any(op.name == "hivm.hir.pointer_cast" and len(op.segments()[0]) > 1 for op in self.walk())


IndexPlan = list[tuple[int | None, int]]
"""Indices as pairs: a known value and -1, or None and the number of the value that holds the index."""


def index_plan(op: Op) -> tuple[IndexPlan, IndexPlan, IndexPlan]:
    """Return the offsets, sizes and strides of `memref.subview` or `memref.reinterpret_cast`."""
    plan = []
    for name, numbers in zip(("static_offsets", "static_sizes", "static_strides"), op.segments()[1:], strict=True):
        rest = iter(numbers)
        plan.append([(None, next(rest)) if known == DYNAMIC else (known, -1) for known in op.attributes[name]])
    offsets, sizes, strides = plan
    return offsets, sizes, strides


def kept_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Return the dimensions of a subview that its result of static `shape` keeps: all except some of size 1."""
    kept: list[int] = []
    for dimension, size in enumerate(sizes):
        if len(kept) < len(shape) and size == shape[len(kept)]:
            kept.append(dimension)
    return kept


@cache
def _context() -> Any:
    from xdsl.context import Context
    from xdsl.dialects import builtin

    context = Context(allow_unregistered=True)
    context.load_dialect(builtin.Builtin)
    return context


@lru_cache(maxsize=16)
def parse(text: str) -> Function:
    """Return the device function of a module in MLIR's generic form. Raises ValueError if there is none, or if there
    are more than one for cube cores and one for the vector cores beside them.

    The last few are cached, as a config is first timed and then, if it leads, executed.
    """
    from xdsl.parser import Parser
    from xdsl.utils.exceptions import ParseError

    try:
        module = Parser(_context(), text).parse_module()
    except ParseError as error:
        raise ValueError(f"the compiled module does not parse: {error}") from error
    entries = [op for op in module.walk() if _name(op) == "func.func" and "hacc.entry" in op.attributes]
    if not entries:
        raise ValueError("the compiled module has no entry function")
    reader = _Reader()
    functions = [reader.function(entry) for entry in entries]
    if len(functions) == 1:
        return functions[0]
    by_core = {function.core: function for function in functions}
    if len(functions) > 2 or len(by_core) < 2 or _types(by_core["cube"]) != _types(by_core["vector"]):
        raise ValueError(f"the compiled module has {len(functions)} entry functions that do not run side by side")
    return replace(by_core["cube"], vector=by_core["vector"])


def _types(function: Function) -> list[MemRef | str]:
    return [kind for _, kind in function.arguments]


def _name(op: Any) -> str:
    unregistered = getattr(op, "op_name", None)
    return unregistered.data if unregistered is not None else str(op.name)


class _Reader:
    """A reader that copies the tree and numbers its values."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._operations = 0

    def function(self, op: Any) -> Function:
        entry = op.regions[0].blocks[0]
        body = self._block(entry)
        arguments = tuple((self._number(a), _type(a.type)) for a in entry.args)
        core = op.attributes.get("hivm.func_core_type")
        cube = core is not None and _attribute(core) == "AIC"
        name = op.properties["sym_name"].data
        return Function(name, arguments, body, len(self._numbers), "cube" if cube else "vector")

    def _number(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _block(self, block: Any) -> Block:
        arguments = tuple(self._number(a) for a in block.args)
        return Block(arguments, tuple(self._op(op) for op in block.ops))

    def _op(self, op: Any) -> Op:
        attributes = {**op.properties, **op.attributes}
        self._operations += 1
        number = self._operations  # counted before the operations in its regions
        return Op(
            name=_name(op),
            operands=tuple(self._number(v) for v in op.operands),
            results=tuple(self._number(v) for v in op.results),
            attributes={key: _attribute(value) for key, value in attributes.items() if key != "op_name__"},
            types=tuple(_type(v.type) for v in op.operands),
            result_types=tuple(_type(v.type) for v in op.results),
            regions=tuple(self._block(region.blocks[0]) if region.blocks else Block((), ()) for region in op.regions),
            number=number,
        )


def _type(kind: Any) -> MemRef | str:
    from xdsl.dialects.builtin import MemRefType

    if not isinstance(kind, MemRefType):
        return str(kind)
    shape = tuple(DYNAMIC if extent < 0 else extent for extent in kind.get_shape())
    space: Any = kind.memory_space
    return MemRef(shape, _strides(kind, shape), str(kind.element_type), space.value.data)


def _strides(kind: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    from xdsl.dialects.builtin import NoneAttr, StridedLayoutAttr

    if isinstance(kind.layout, StridedLayoutAttr):
        return tuple(DYNAMIC if isinstance(s, NoneAttr) else s.data for s in kind.layout.strides)
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step = DYNAMIC if DYNAMIC in (step, extent) else step * extent
    return tuple(reversed(strides))


def _attribute(attribute: Any) -> Any:
    """Return numbers, strings and lists as Python values, a dialect's own attribute as the text inside its brackets."""
    from xdsl.dialects import builtin

    match attribute:
        case builtin.IntegerAttr() | builtin.FloatAttr():
            return attribute.value.data
        case builtin.StringAttr():
            return attribute.data
        case builtin.DenseArrayBase():
            return tuple(attribute.get_values())
        case builtin.ArrayAttr():
            return tuple(_attribute(item) for item in attribute.data)
        case builtin.UnitAttr():
            return True
        case builtin.UnregisteredAttr():
            return attribute.value.data
        case _:
            return str(attribute)
