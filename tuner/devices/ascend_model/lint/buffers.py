"""On-chip memory: tiles that do not fit, double buffers that did not, and tiles that masks fill first."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilewise.kernels.spec import Target
from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.source_lines import Place
from tilewise.tuner.devices.ascend_model.lint.code import Code
from tilewise.tuner.devices.ascend_model.lint.costs import Costs
from tilewise.tuner.devices.ascend_model.lint.finding import RULES, Finding
from tilewise.tuner.devices.ascend_model.report.located_launch import LocatedLaunch
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES, ON_CHIP_NAMES

__all__ = ["lost_double_buffers", "masked_refills", "overflow"]

_SHRINK = {
    "L0C": "take fewer rows or columns per tile: L0C holds the sums of rows x columns, 4 bytes each",
    "L1": "take a smaller depth per trip, or a smaller tile: L1 holds the operands of a trip",
    "UB": "take smaller tiles, or go through the same tile in smaller steps",
}
_LOADS = ("hivm.hir.load", "hivm.hir.nd2nz")


def overflow(launch: LocatedLaunch) -> Iterator[Finding]:
    """Yield a finding if the compiler refused the launch because on-chip memory is too small."""
    made = launch.compiled
    if made.required_bits is None or made.available_bits is None:
        return
    wanted, had = made.required_bits / 8192, made.available_bits / 8192
    message = f"{launch.name} needs {wanted:.0f} KiB of {made.overflowed}, which has {had:.0f} KiB"
    yield Finding(RULES["on-chip-overflow"], message, _shrink(made.overflowed), launch.place)


def lost_double_buffers(code: Code, costs: Costs, launch: LocatedLaunch, target: Target) -> Iterator[Finding]:
    """Yield a finding if the compiler turned double buffering off, at the largest buffer that a loop loads again."""
    made = launch.compiled
    if "auto-multi-buffer" not in made.dropped:
        return
    loads = [op for op in code.walk() if code.loops(op)]
    single = [(op, kind) for op in loads if (kind := _loaded_once(code, op, made.overflowed))]
    if not single:
        return
    single.sort(key=lambda pair: -_bytes(pair[1]))
    tiles = [f"{_tile(code, op, kind)} on {code.place(op)}" for op, kind in single]
    space = next(name for name, named in ON_CHIP_NAMES.items() if named == made.overflowed)
    had = (target.on_chip_bytes if space == "ub" else ON_CHIP_BYTES[space]) / 1024
    message = (
        f"two buffers each do not fit the {had:.0f} KiB of {made.overflowed}, so the compiler turned double buffering "
        f"off; loads into {', '.join(tiles)} wait until the tile before is used up"
    )
    place = code.place(single[0][0]) or launch.place
    cost = costs.hidden_at_most(op for op, _ in single)
    yield Finding(RULES["double-buffering-lost"], message, _shrink(made.overflowed), place, None, cost)


def _loaded_once(code: Code, op: Op, memory: str) -> MemRef | None:
    """Return the type of the buffer of `memory` that an operation loads, if it has one address only."""
    if op.name not in _LOADS:
        return None
    buffer = code.definition(code.root(op.operands[1]))
    if buffer is None or buffer.name != "hivm.hir.pointer_cast" or len(buffer.segments()[0]) > 1:
        return None
    kind = buffer.result_type
    return kind if isinstance(kind, MemRef) and ON_CHIP_NAMES.get(kind.space) == memory else None


def _tile(code: Code, op: Op, kind: MemRef) -> str:
    name = code.argument(op.operands[0]) or "workspace"
    return f"the tile of {name} ({_bytes(kind) / 1024:.0f} KiB)"


def _bytes(kind: MemRef) -> int:
    return math.ceil(math.prod(kind.shape) * kind.item_bits / 8)


def _shrink(memory: str) -> str:
    return _SHRINK.get(memory, "take smaller tiles")


def masked_refills(code: Code, costs: Costs) -> Iterator[Finding]:
    """Yield a finding per line on which tiles are filled before masked loads, where the model can tell what it costs:
    code for it is in every masked kernel, and usually runs in tails only."""
    fills: dict[Place | None, list[tuple[Op, Op]]] = {}
    for op in code.walk():
        if op.name == "hivm.hir.vbrc" and (load := _load_after(code, op)):
            fills.setdefault(code.place(load), []).append((op, load))
    for place, pairs in fills.items():
        cost = costs.of([fill for fill, _ in pairs])
        if cost is None:
            continue
        fill, load = pairs[0]
        kind = fill.types[1]
        assert isinstance(kind, MemRef)
        name = code.argument(load.operands[0])
        message = f"the masked load of {name} first fills its tile in {ON_CHIP_NAMES[kind.space]}, then loads over it"
        remedy = (
            "choose tiles that divide the sizes, or move a last tile back so that it is full, so that masks cut nothing"
        )
        yield Finding(RULES["masked-refill"], message, remedy, place, None, cost)


def _load_after(code: Code, fill: Op) -> Op | None:
    """Return the load into the buffer that a `vbrc` of one number fills, in the same loops."""
    if isinstance(fill.types[0], MemRef):
        return None
    buffer, loops = code.root(fill.operands[1]), code.loops(fill)
    loads = (op for op in code.walk() if op.name in _LOADS and code.root(op.operands[1]) == buffer)
    return next((op for op in loads if op.number > fill.number and code.loops(op) == loops), None)
