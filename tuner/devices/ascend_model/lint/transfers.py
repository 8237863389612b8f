"""Transfers whose rows are not contiguous, or too far apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, Op
from tilewise.tuner.devices.ascend_model.lint.code import Code
from tilewise.tuner.devices.ascend_model.lint.costs import Costs
from tilewise.tuner.devices.ascend_model.lint.finding import RULES, Finding
from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES

__all__ = ["far_rows", "inner_strides"]

_FAR = int(CUBE_FIGURES["far_stride"].value)
_WAIT = "hivm.hir.sync_block_wait"


def inner_strides(code: Code, costs: Costs, halves: Sequence[Code]) -> Iterator[Finding]:
    """Yield a finding per transfer between global memory and a vector core whose rows are not known to be contiguous.

    It must copy a tile for the cube core, or have a modelled time and a stride that is not 1. `halves` are all
    functions of the launch.
    """
    for op in code.walk():
        if op.name not in ("hivm.hir.load", "hivm.hir.store"):
            continue
        side = 0 if op.name == "hivm.hir.load" else 1
        kind, strides = op.types[side], code.strides(op.operands[side])
        if not isinstance(kind, MemRef) or not (name := code.argument(op.operands[side])) or kind.shape[-1] == 1:
            continue
        if kind.strides[-1] == 1:
            continue
        copied = side == 0 and code.is_copied_to_workspace(op)
        if copied or (costs.of([op]) is not None and strides[-1] not in (1, None)):
            waits = sum(each.name == _WAIT for half in halves for each in half.walk()) if copied else 0
            yield _inner_stride(code, costs, op, name, kind, strides, waits)


def _inner_stride(
    code: Code, costs: Costs, op: Op, name: str, kind: MemRef, strides: Sequence[int | None], waits: int
) -> Finding:
    known = "" if strides[-1] is None else f" (here {strides[-1]})"
    told = f"a stride known only at run time{known}" if kind.strides[-1] < 0 else f"a stride of {kind.strides[-1]}"
    message = f"{name} is addressed with {told} between the elements of a row"
    if waits:
        message += "; vector cores copy the tile to workspace for the cube core, and the compiled code has "
        message += f"{waits} waits between cores"
    if 1 in (kind.strides[:-1] or ()):
        remedy = "load the tile with its contiguous axis last, and turn it with tl.trans"
    elif strides[-1] == 1:
        remedy = "leave the stride out, or pass it as tl.constexpr, so that the compiler knows that it is 1"
    else:
        remedy = (
            "let neighbouring elements of the tile's last axis be neighbours in memory; turn the tile with tl.trans"
        )
    return Finding(RULES["inner-stride"], message, remedy, code.place(op), None, costs.of([op]))


def far_rows(code: Code, costs: Costs) -> Iterator[Finding]:
    """Yield a finding per transfer to L1 whose rows are at least as far apart as the instruction cannot say."""
    for op in code.walk():
        if op.name != "hivm.hir.nd2nz":
            continue
        strides = code.strides(op.operands[0])
        if len(strides) != 2 or strides[0] is None or strides[0] < _FAR:
            continue
        kind = op.types[0]
        assert isinstance(kind, MemRef)
        name = code.argument(op.operands[0]) or "workspace"
        message = f"rows of {name} are {strides[0]} elements apart, so the tile is loaded to L1 row by row"
        remedy = (
            f"keep rows less than {_FAR} elements apart: split the matrix by columns, or store it the other way round "
            "if its other side is shorter"
        )
        yield Finding(RULES["far-rows"], message, remedy, code.place(op), None, costs.of([op]))
