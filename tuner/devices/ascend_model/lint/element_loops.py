"""Loops over a tile's elements or rows, where one transfer or instruction would do: accesses and arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.source_lines import Place
from tilewise.tuner.devices.ascend_model.lint.code import Code
from tilewise.tuner.devices.ascend_model.lint.costs import Costs
from tilewise.tuner.devices.ascend_model.lint.finding import RULES, Finding

__all__ = ["element_loops", "row_loops"]

_CLAMPS = ("hivm.hir.vmin", "hivm.hir.vmax", "hivm.hir.vsel")
_VERBS = {"addi": "additions", "subi": "subtractions", "muli": "products", "divsi": "quotients", "divui": "quotients"}
_VERBS |= {"floordivsi": "quotients", "ceildivsi": "quotients", "remsi": "remainders", "remui": "remainders"}
_VERBS |= {"cmpi": "comparisons", "maxsi": "maxima", "minsi": "minima"}

_MASKED = "use the offsets from tl.arange as they are, and mask rows and columns outside"


_DIVISIONS = {
    **dict.fromkeys(
        ("remsi", "remui"), ("its offsets are wrapped by a remainder (%)", f"compute them without: {_MASKED}")
    ),
    **dict.fromkeys(
        ("divsi", "divui", "floordivsi", "ceildivsi"),
        (
            "its offsets are divided (//)",
            "where neighbours share a quotient, compute it once and load the rows behind it as one tile",
        ),
    ),
}
"""Divisions in offsets, element by element: why they form no rows, and what to do."""


@dataclass(frozen=True, slots=True)
class _Loop:
    """A nest of loops that moves or computes one element of a tile at a time; `outside` are its accesses to global
    memory."""

    op: Op
    inside: Sequence[Op]
    outside: Sequence[Op]


def element_loops(code: Code, costs: Costs) -> Iterator[Finding]:
    """Yield a finding per loop and line. Arithmetic on addresses of element-wise accesses says so."""
    loops = list(_loops(code))
    addresses: dict[int, Place | None] = {}
    for loop in loops:
        for op in loop.outside:
            for each in code.slice(op.operands[_memory(op)]):
                addresses.setdefault(each.number, code.place(op))
    for loop in loops:
        if loop.outside:
            yield from _accesses(code, costs, loop)
        elif finding := _arithmetic(code, costs, loop, addresses):
            yield finding


def row_loops(code: Code, costs: Costs) -> Iterator[Finding]:
    """Yield a finding per load of single rows, whose addresses were computed one by one, for a cube core."""
    for op in code.walk():
        if op.name != "hivm.hir.load" or not (loops := code.loops(op)) or not code.is_copied_to_workspace(op):
            continue
        index = loops[-1].body.arguments[0]
        if not any(index in view.operands for view in code.views(op.operands[1])):
            continue
        why, remedy, cause = _cause(code, op)
        rows = code.trips(loops[-1])
        message = (
            f"rows of {code.argument(op.operands[0])} are loaded one by one{f', {rows} per tile' if rows else ''}, "
        )
        message += f"and vector cores copy the tile to workspace for the cube core: {why}"
        cost = costs.of(loops[-1].body.walk())
        yield Finding(RULES["row-access"], message, remedy, code.place(op), cause, cost)


def _loops(code: Code) -> Iterator[_Loop]:
    """Yield the outermost loops in which nothing but the scalar unit works."""
    for op in code.walk():
        if op.name != "scf.for" or not _is_scalar(op) or any(map(_is_scalar, code.loops(op))):
            continue
        (body,) = op.regions
        inside = list(body.walk())
        indices = {each.body.arguments[0] for each in [op, *inside] if each.name == "scf.for"}
        if any(_touches(each, indices) for each in inside):
            yield _Loop(op, inside, [each for each in inside if _space(each) == "gm"])


def _is_scalar(loop: Op) -> bool:
    return not any(op.name.startswith("hivm.") for region in loop.regions for op in region.walk())


def _touches(op: Op, indices: set[int]) -> bool:
    """Return whether an operation accesses an element on chip that the loops count through."""
    return _space(op) not in ("", "gm") and not indices.isdisjoint(op.operands)


def _space(op: Op) -> str:
    if op.name not in ("memref.load", "memref.store"):
        return ""
    kind = op.types[_memory(op)]
    assert isinstance(kind, MemRef)
    return kind.space


def _memory(op: Op) -> int:
    return 1 if op.name == "memref.store" else 0


def _accesses(code: Code, costs: Costs, loop: _Loop) -> Iterator[Finding]:
    by_line: dict[tuple[str, str, Place | None], Op] = {}
    for op in loop.outside:
        verb = "read" if op.name == "memref.load" else "written"
        by_line.setdefault((verb, code.argument(op.operands[_memory(op)]), code.place(op)), op)
    cost = costs.of([loop.op, *loop.inside])
    for (verb, name, place), op in by_line.items():
        why, remedy, cause = _cause(code, op)
        count = _elements(code, loop.op)
        message = f"{name or 'memory'} is {verb} element by element{count}: {why}"
        yield Finding(RULES["element-access"], message, remedy, place, cause, cost)


def _cause(code: Code, access: Op) -> tuple[str, str, Place | None]:
    """Return why the addresses form no rows, what to do, and the line that is to blame."""
    computed = code.slice(access.operands[_memory(access)])
    for op in computed:
        if op is not access and (name := _listed(code, op)):
            remedy = "load whole rows in a loop over the list, one contiguous load per row, or sort the rows beforehand"
            return f"the addresses come from the list {name}", remedy, code.place(op)
    around = code.loops(access)[-1]
    for op in computed:
        if (found := _DIVISIONS.get(_verb(op))) and any(each is around or _is_scalar(each) for each in code.loops(op)):
            return *found, code.place(op)
    for op in computed:
        if op.name in _CLAMPS:
            return "its offsets are clamped", f"compute them without: {_MASKED}", code.place(op)
    remedy = "write the offsets as base + rows * stride + columns, with rows and columns from tl.arange, and mask them"
    return "the compiler sees no rows in its offsets", remedy, None


def _listed(code: Code, op: Op) -> str:
    """Return the buffer of which an operation reads more than one number; empty if it does not."""
    reads = op.name == "hivm.hir.load" or (_space(op) == "gm" and any(map(_is_scalar, code.loops(op))))
    return code.argument(op.operands[0]) if reads else ""


def _arithmetic(code: Code, costs: Costs, loop: _Loop, addresses: dict[int, Place | None]) -> Finding | None:
    """Return a finding for a loop that computes; None for one that only moves elements on chip."""
    computed = [op for op in loop.inside if _verb(op) in _VERBS and str(op.types[0]) != "index"]
    if not computed:
        return None
    kinds = list(dict.fromkeys(f"{op.types[0]} {_VERBS[_verb(op)]}" for op in computed))
    message = f"{' and '.join(kinds)} run one by one on the scalar unit{_elements(code, loop.op)}"
    served = next((addresses[op.number] for op in loop.inside if op.number in addresses), None)
    if served and not code.loops(loop.op):  # little beside the accesses, whose finding names it
        return None
    if served:
        message += f", for the addresses of the element-wise accesses on {served}"
        remedy = "they go with those accesses"
    elif any(str(op.types[0]) == "i64" for op in computed):
        remedy = "keep tiles of integers in int32"
    elif any(_verb(op) in _DIVISIONS for op in computed):
        remedy = "take quotients and remainders of the program's index, not of a tile"
    else:
        remedy = "compute it once, outside loops, or in a type that the compiler has a vector instruction for"
    cost = costs.of([loop.op, *loop.inside])
    return Finding(RULES["scalar-arithmetic"], message, remedy, code.place(loop.op), served, cost)


def _verb(op: Op) -> str:
    return op.name.rpartition(".")[2]


def _elements(code: Code, loop: Op) -> str:
    nest = [loop, *(op for op in loop.body.walk() if op.name == "scf.for")]
    trips = [code.trips(each) for each in nest]
    if any(trip is None for trip in trips):
        return ""
    often = " on each trip of the loop" if code.loops(loop) else ""
    return f", {math.prod(trip or 0 for trip in trips)} elements{often}"
