"""The global memory of a launch, as its programs read and write it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewise.tuner.devices.ascend_model.executor.groups import Group
from tilewise.tuner.devices.ascend_model.executor.hazards import Made, Order, Sharing
from tilewise.tuner.devices.ascend_model.executor.memory import (
    POISON,
    Array,
    Fault,
    Global,
    View,
    decode,
    encode,
    place,
)
from tilewise.tuner.devices.ascend_model.executor.vector_ops import combine
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation

__all__ = ["GlobalMemory", "buffers_of", "require_on_chip", "require_transfer", "written_arguments"]

_STORES = ("hivm.hir.store", "hivm.hir.fixpipe", "memref.store")


class GlobalMemory:
    """The buffers of one launch, by argument index. `names` has an entry per argument of the function, and one for each
    further buffer, which programs have to themselves.

    Accesses to the arguments in `written` are checked for races between programs. `strays` describes the reads a little
    beyond the ends of the others, which give values made of the byte `stray`.
    """

    def __init__(
        self, buffers: Mapping[int, Array | Global], names: Sequence[str], written: Collection[int], stray: int
    ) -> None:
        self._buffers = {
            argument: buffer if isinstance(buffer, Global) else Global(names[argument], buffer)
            for argument, buffer in buffers.items()
        }
        filled = {argument: buffer.size for argument, buffer in buffers.items() if not isinstance(buffer, Global)}
        self._sharing = Sharing([filled.get(argument, 0) for argument in range(len(names))], written, names)
        self._written, self._stray = written, stray
        self.strays: set[str] = set()

    def poison(self, base: int) -> None:
        """Fill a buffer with poison, as if it had never been used."""
        self._buffers[base].fill(POISON)
        self._sharing.renew(base)

    def read(self, group: Group, pipe: int, op: Op, view: View) -> Iterator[tuple[slice, Array]]:
        """Yield the programs' windows on global memory, or their elements at once if some lie beyond its ends."""
        memory, programs = self._buffer(view, op), len(group.programs)
        if view.base not in self._written and (stray := memory.stray(view, op)):
            self.strays.add(stray)
            yield slice(0, programs), memory.with_strays(view, programs, self._stray)
            return
        self._sharing.load(group.order, pipe, op, view, group.programs)
        yield from memory.pieces(view, programs, op)

    def gather(self, op: Op, element: View, at: Array) -> Array | None:
        """Return the elements at `at` of the buffer that a view is of; None if the launch may write the buffer, so that
        each read has to be checked."""
        memory = self._buffer(element, op)
        if element.base in self._written:
            return None
        flat = replace(element, offset=at.ravel())
        if stray := memory.stray(flat, op):
            self.strays.add(stray)
        else:
            memory.require(flat, op)
        return decode(memory.with_strays(flat, at.size, self._stray), element.dtype).reshape(at.shape)

    def is_free(self, order: Order, pipe: int, op: Op, element: View, at: Array, programs: Array) -> bool:
        """Return whether each program may store to its element in `at` of the buffer that a view is of, as if nothing
        else used that element: all lie inside, no other program uses them, and what this one did there is done."""
        size = self._buffer(element, op).elements(element.dtype)
        inside = not at.size or (at.min() >= 0 and at.max() < size)
        return bool(inside) and self._sharing.is_free(order, pipe, element.base, at, programs)

    def scatter(self, element: View, at: Array, values: Array, programs: Array, key: int, made: Made) -> None:
        """Store values to elements that are free, by a pipe's number; `made` are the time and its operation's label."""
        self._buffers[element.base].put(at, values, element.dtype)
        self._sharing.mark(element.base, at, programs, key, made)

    def store(self, group: Group, pipe: int, op: Op, view: View, values: Array, kind: str) -> None:
        """Store one row of values per program or, with an atomic `kind`, combine it with the buffer's contents."""
        programs = group.programs
        windows = self._buffer(view, op).pieces(view, len(programs), op)
        pieces = [(part, window, values[part]) for part, window in windows]
        if kind != "none":
            self._sharing.add(op, view, programs)
            for _, window, added in pieces:
                _accumulate(combine[kind], window, added, view.dtype)
            return
        self._sharing.store(group.order, pipe, op, view, programs, pieces)

    def _buffer(self, view: View, op: Op) -> Global:
        if view.base not in self._buffers:
            raise UnknownOperation(
                f"the model does not support {place(op)} on memory other than the kernel's arguments"
            )
        return self._buffers[view.base]


def _accumulate(function: np.ufunc, window: Array, added: Array, dtype: str) -> None:
    """Combine one program after the other, as several may add to the same elements."""
    for row, more in zip(window, added, strict=True):
        row[...] = encode(function(decode(row, dtype), decode(more, dtype)), dtype)


def require_on_chip(views: Sequence[View], op: Op) -> None:
    if any(not view.on_chip for view in views):
        raise Fault(f"{place(op)} uses global memory as if it were on chip")


def require_transfer(outside: View, inside: View, op: Op) -> None:
    """Raise `Fault` unless a transfer joins global and on-chip memory of equal shapes, apart from axes of extent 1."""
    require_on_chip([inside], op)
    if outside.on_chip:
        raise Fault(f"{place(op)} uses on-chip memory as if it were global")
    if [n for n in outside.sizes if n != 1] != [n for n in inside.sizes if n != 1]:
        raise Fault(f"{place(op)} is between memory of shapes {outside.sizes} and {inside.sizes}, which differ")


def buffers_of(function: Function, names: Sequence[str]) -> dict[int, str]:
    """Return the kernel's buffers by the index of their argument: the last of the function's memrefs."""
    memrefs = [p for p, (_, kind) in enumerate(function.arguments) if isinstance(kind, MemRef)]
    return dict(zip(memrefs[len(memrefs) - len(names) :], names, strict=True))


def written_arguments(function: Function) -> set[int]:
    """Return the indices of the arguments that one core's function stores to."""
    roots = {number: index for index, (number, _) in enumerate(function.arguments)}
    written = set()
    for op in function.body.walk():
        if op.name == "scf.for":
            arguments = op.body.arguments[1:]
            sources: Iterator[tuple[int, int]] = zip(arguments, op.operands[3:], strict=True)
            roots |= {target: roots[source] for target, source in sources if source in roots}
            roots |= {
                target: roots[source]
                for target, source in zip(op.results, op.operands[3:], strict=True)
                if source in roots
            }
        elif op.name == "memref_ext.alloc_workspace":
            continue  # its buffers are none of the arguments
        elif op.operands and op.operands[0] in roots and op.results and isinstance(op.types[0], MemRef):
            roots[op.result] = roots[op.operands[0]]
        elif op.name in _STORES and op.operands[1] in roots:
            written.add(roots[op.operands[1]])
    return written
