"""An executor of a launch's scheduled program, which finds its results and every hazard on the way.

Programs run side by side as long as they take the same control flow: numbers that differ between them are arrays, and
on-chip memory has a row for each. Where a loop bound, a branch or a size differs, the group is split and its parts go
on alone. Operations are executed in program order, which gives the right values unless something races. A possible
race is an error (`hazards.py`), as is an access out of bounds (`memory.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewise.tuner.devices.ascend_model.clock.core import MTE2, MTE3, S, V, pipe_number
from tilewise.tuner.devices.ascend_model.executor.cube_ops import CUBE_STEPS
from tilewise.tuner.devices.ascend_model.executor.element_loops import all_at_once
from tilewise.tuner.devices.ascend_model.executor.global_memory import (
    GlobalMemory,
    buffers_of,
    require_on_chip,
    require_transfer,
    written_arguments,
)
from tilewise.tuner.devices.ascend_model.executor.groups import Group, Step, Trip, run_steps
from tilewise.tuner.devices.ascend_model.executor.hazards import Order
from tilewise.tuner.devices.ascend_model.executor.memory import (
    BLOCK_BYTES,
    STRAYS,
    Array,
    Fault,
    Global,
    Layout,
    OnChip,
    OutOfBounds,
    View,
    collapsed,
    decode,
    encode,
    place,
)
from tilewise.tuner.devices.ascend_model.executor.scatter_loops import scattered
from tilewise.tuner.devices.ascend_model.executor.vector_ops import combine, computation
from tilewise.tuner.devices.ascend_model.ir.element_loops import ElementLoop, ScatterLoop
from tilewise.tuner.devices.ascend_model.ir.hivm import (
    DYNAMIC,
    Block,
    Function,
    IndexPlan,
    MemRef,
    Op,
    index_plan,
    kept_dimensions,
)
from tilewise.tuner.devices.ascend_model.ir.scalars import wrapping_function
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation, ceil, expanded
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES, ON_CHIP_NAMES

__all__ = ["Executor", "side_by_side"]

_TOGETHER_BYTES = 12 << 20
"""Limit on the on-chip memory of programs that run side by side: more would not fit the host's caches."""

_TOGETHER = 1024
"""Limit on the number of programs that run side by side."""

_IGNORED = (
    "annotation.mark",
    "func.return",
    "hivm.hir.set_ffts_base_addr",
    "hivm.hir.set_mask_norm",
    "llvm.intr.assume",
    "scf.condition",
    "scf.yield",
)


class Executor:
    """A compiled function on a part with `on_chip_bytes` per core; raises `UnknownOperation` for code it cannot run.

    `unbarriered` names operations on one pipe that no barrier separates although one uses the other's result, and
    that the pipe's own order keeps apart. `memory` is the global memory of the last launch; reads a little beyond a
    buffer's ends give values made of the byte `stray`. `on_chip_bytes` is what a program takes.
    """

    def __init__(
        self,
        function: Function,
        on_chip_bytes: int,
        *,
        order: Callable[[int], Order] | None = None,
        stray: int = STRAYS[0],
    ) -> None:
        """Compile the function. `order` replaces the check of accesses; programs are then not checked for sharing."""
        self.function = function
        self.layout = _layout(function, {**ON_CHIP_BYTES, "ub": on_chip_bytes})
        self._order = order or (lambda size: Order(size, self.layout.spot))
        self.on_chip_bytes = self.layout.starts.get("ca", self.layout.size)  # operands in L0 are never looked at
        self.unbarriered: set[str] = set()
        self._written = set() if order else written_arguments(function)
        self._stray = stray
        self.memory = GlobalMemory({}, [], (), stray)
        self._steps = self._block(function.body)

    def run(
        self,
        buffers: Mapping[str, Array | Global],
        scalars: Sequence[int | float],
        grid: Sequence[int],
        chosen: Array | None = None,
    ) -> None:
        """Execute a launch over the grid (one to three axes), in place on `buffers`: the arguments by name, in order,
        each a one-dimensional array of its stored type. Raises `Fault` on errors that no correct program makes.

        Only the `chosen` programs are executed, if they are given.
        """
        sizes = [*grid, 1, 1][:3]
        given = buffers_of(self.function, list(buffers))
        names = [given.get(p, f"argument {p}") for p in range(len(self.function.arguments))]
        self.memory = GlobalMemory({p: buffers[name] for p, name in given.items()}, names, self._written, self._stray)
        programs = np.arange(math.prod(sizes), dtype=np.int64) if chosen is None else chosen
        together = side_by_side(self.on_chip_bytes)
        for start in range(0, len(programs), together):
            self.execute(programs[start : start + together], [*scalars, *sizes])

    def execute(self, programs: Array, scalars: Sequence[int | float], core: int = 0, cores: int = 1) -> None:
        """Execute some programs to their ends, on one of the cores that run them."""
        order = self._order(self.layout.size).beside(core, cores)
        group = Group(programs, self._values(scalars), OnChip(len(programs), self.on_chip_bytes), order, [])
        with np.errstate(all="ignore"):
            for part in run_steps(self._steps, [group]):
                part.order.finish()
                self.unbarriered |= part.order.unbarriered

    def _values(self, scalars: Sequence[int | float]) -> list[Any]:
        """Return the values of a program that has yet to begin."""
        kinds = self.function.arguments
        expected = len([kind for _, kind in kinds[1:] if not isinstance(kind, MemRef)])
        if len(scalars) != expected:
            raise ValueError(f"{self.function.name} takes {expected} scalars, {len(scalars)} were given")
        values: list[Any] = [None] * self.function.values
        rest = iter(scalars)
        for index, (number, kind) in enumerate(kinds):
            if isinstance(kind, MemRef):
                values[number] = View(index, 0, 0, (), (), kind.dtype)
            else:
                values[number] = 0 if index == 0 else next(rest)  # argument 0 is the address of a sync area
        return values

    # From operations to steps ----------------------------------------------------------------------------------

    def _block(self, block: Block) -> list[Step]:
        return [self.step(op) for op in block.operations if op.name not in _IGNORED]

    def step(self, op: Op) -> Step:
        """Compile one operation."""
        if op.name.startswith(("arith.", "math.")):
            return self._scalar(op)
        if op.name in _STRUCTURE:
            return _STRUCTURE[op.name](self, op)
        if op.name in CUBE_STEPS:
            return CUBE_STEPS[op.name](self, op)
        if op.name.startswith("hivm.hir."):
            return self._vector(op)
        raise UnknownOperation(f"the model does not know the operation {op.name}")

    def _scalar(self, op: Op) -> Step:
        (result,), operands = op.results, op.operands
        if op.name == "arith.constant":
            value = op.attributes["value"]

            def constant(group: Group) -> None:
                group.values[result] = value

            return constant
        if op.name == "arith.select" and isinstance(op.result_type, MemRef):
            return self._choose(op)
        function = wrapping_function(op)

        def scalar(group: Group) -> None:
            values = group.values
            values[result] = function(*[values[n] for n in operands])

        return scalar

    def _choose(self, op: Op) -> Step:
        condition, yes, no = op.operands

        def choose(group: Group) -> list[Group]:
            groups = group.split([condition])
            for part in groups:
                part.values[op.result] = part.values[yes if part.values[condition] else no]
            return groups

        return choose

    def _program(self, op: Op) -> Step:
        def program(group: Group) -> None:
            group.values[op.result] = group.programs if len(group.programs) > 1 else int(group.programs[0])

        return program

    # Structure -------------------------------------------------------------------------------------------------

    def _if(self, op: Op) -> Step:
        branches = [(self._block(region), region.yielded()) for region in op.regions]
        condition = op.operand

        def branch(group: Group) -> list[Group]:
            done = []
            for part in group.split(op.operands):
                steps, yielded = branches[0 if part.values[condition] else 1]
                for end in run_steps(steps, [part]):
                    end.assign(op.results, yielded)
                    done.append(end)
            return done

        return branch

    def _for(self, op: Op) -> Step:
        loop = self._trips(op)
        if found := ElementLoop.of(op, rows=True):
            return all_at_once(self, found, loop)
        scatter = ScatterLoop.of(op)
        return scattered(self, scatter, loop) if scatter else loop

    def _trips(self, op: Op) -> Step:
        """Compile a loop that is executed trip by trip. Programs that begin elsewhere take their trips side by side."""
        (body,) = op.regions
        steps, yielded = self._block(body), body.yielded()
        index, *carried = body.arguments

        def loop(group: Group) -> list[Group]:
            low, high, step = (group.values[n] for n in op.operands[:3])
            if np.any(np.less_equal(step, 0)):
                raise UnknownOperation(f"the model does not support {place(op)} with a step of {np.min(step)}")
            counts = np.maximum(0, -((low - high) // step))
            return [end for part, count in group.split_by(counts) for end in whole(part, count)]

        def whole(group: Group, count: int) -> list[Group]:
            group.assign([index, *carried], [op.operands[0], *op.operands[3:]])
            groups = [group]
            for number in range(count):
                for part in groups:
                    part.trips.append(Trip(number, count))
                groups = run_steps(steps, groups)
                for part in groups:
                    part.trips.pop()
                    part.values[index] = part.values[index] + part.values[op.operands[2]]
                    part.assign(carried, yielded)
            for part in groups:
                part.assign(op.results, carried)
            return groups

        return loop

    def _while(self, op: Op) -> Step:
        """Compile a while loop: `before` decides and passes values out of the loop or to `after`, which yields back."""
        before, after = op.regions
        deciding, steps = self._block(before), self._block(after)
        condition, *passed = before.operations[-1].operands

        def loop(group: Group) -> list[Group]:
            group.assign(before.arguments, op.operands)
            running, done = [group], []
            while running:
                again = []
                for part in [p for g in run_steps(deciding, running) for p in g.split([condition])]:
                    if part.values[condition]:
                        part.assign(after.arguments, passed)
                        again.append(part)
                    else:
                        part.assign(op.results, passed)
                        done.append(part)
                running = run_steps(steps, again)
                for part in running:
                    part.assign(before.arguments, after.yielded())
            return done

        return loop

    # Views of memory -------------------------------------------------------------------------------------------

    def _pointer_cast(self, op: Op) -> Step:
        """Compile a planned buffer; iterations use its addresses in turn if it has several."""
        addresses, kind, result = op.segments()[0], op.result_type, op.result
        assert isinstance(kind, MemRef)
        if DYNAMIC in kind.shape:
            raise UnknownOperation(f"the model does not support {place(op)} to a dynamic shape")
        if kind.space not in self.layout.starts:
            raise UnknownOperation(f"the model does not know the memory {kind.space} of a {self.function.core} core")
        start = self.layout.starts[kind.space]

        def cast(group: Group) -> None:
            turn = group.iteration() % len(addresses) if len(addresses) > 1 else 0
            address = start + int(group.values[addresses[turn]])
            group.values[result] = View(-1, address, 0, kind.shape, kind.strides, kind.dtype)

        return cast

    def _subview(self, op: Op) -> Step:
        (source,), *_ = op.segments()
        offsets, sizes, steps = index_plan(op)
        kind, result = op.result_type, op.result
        assert isinstance(kind, MemRef)
        kept = kept_dimensions(op.attributes["static_sizes"], kind.shape)
        uniform = [number for known, number in [*sizes, *steps] if known is None]
        placed = [*uniform, *(number for known, number in offsets if known is None)]

        def subview(group: Group) -> list[Group]:
            groups = group.split(placed if group.values[source].on_chip else uniform)
            for part in groups:
                view: View = part.values[source]
                moves = [o * s for o, s in zip(_read(offsets, part), view.strides, strict=True)]
                extents, strides = _read(sizes, part), _read(steps, part)
                part.values[result] = replace(
                    view,
                    offset=view.offset + sum(moves),
                    sizes=tuple(max(0, int(extents[i])) for i in kept),
                    strides=tuple(view.strides[i] * int(strides[i]) for i in kept),
                )
            return groups

        return subview

    def _reinterpret(self, op: Op) -> Step:
        (source,), *_ = op.segments()
        offsets, sizes, strides = index_plan(op)
        kind, result = op.result_type, op.result
        assert isinstance(kind, MemRef)
        uniform = [number for known, number in [*sizes, *strides] if known is None]
        placed = [*uniform, *(number for known, number in offsets if known is None)]

        def reinterpret(group: Group) -> list[Group]:
            groups = group.split(placed if group.values[source].on_chip else uniform)
            for part in groups:
                part.values[result] = replace(
                    part.values[source],
                    offset=_read(offsets, part)[0],
                    sizes=tuple(max(0, int(size)) for size in _read(sizes, part)),
                    strides=tuple(int(stride) for stride in _read(strides, part)),
                    dtype=kind.dtype,
                )
            return groups

        return reinterpret

    def _metadata(self, op: Op) -> Step:
        """Split a view into its base, offset, sizes and strides."""
        source, (base, offset, *rest) = op.operand, op.results

        def metadata(group: Group) -> None:
            view: View = group.values[source]
            group.values[base] = replace(view, offset=0, sizes=(), strides=())
            for number, value in zip([offset, *rest], [view.offset, *view.sizes, *view.strides], strict=True):
                group.values[number] = value

        return metadata

    def _collapse(self, op: Op) -> Step:
        groups, source, result = op.attributes["reassociation"], op.operand, op.result

        def collapse(group: Group) -> None:
            group.values[result] = collapsed(group.values[source], groups)

        return collapse

    def _expand(self, op: Op) -> Step:
        kind, source, result = op.result_type, op.operands[0], op.result
        groups = op.attributes["reassociation"]
        assert isinstance(kind, MemRef)

        def expand(group: Group) -> None:
            view: View = group.values[source]
            sizes, strides = expanded(view.sizes, view.strides, groups, kind.shape)
            group.values[result] = replace(view, sizes=sizes, strides=strides)

        return expand

    def _retype(self, op: Op) -> Step:
        """View the same memory under the result's static type: cast, bitcast."""
        kind, source, result = op.result_type, op.operand, op.result
        assert isinstance(kind, MemRef)

        def retype(group: Group) -> None:
            view: View = group.values[source]
            if DYNAMIC in kind.shape + kind.strides and len(kind.shape) != len(view.sizes):
                raise UnknownOperation(f"the model does not support {place(op)} to a dynamic shape")
            sizes = view.sizes if DYNAMIC in kind.shape else kind.shape
            strides = view.strides if DYNAMIC in kind.strides else kind.strides
            if kind.dtype != view.dtype and kind.item_bits != view.item_bits:
                raise UnknownOperation(f"the model does not support {place(op)} between types of different widths")
            group.values[result] = replace(view, sizes=sizes, strides=strides, dtype=kind.dtype)

        return retype

    # Pipes -----------------------------------------------------------------------------------------------------

    def _barrier(self, op: Op) -> Step:
        pipe = None if op.attributes["pipe"] == "PIPE_ALL" else pipe_number(op.attributes["pipe"], self.function)

        def barrier(group: Group) -> None:
            group.order.barrier(pipe)

        return barrier

    def _flag(self, op: Op) -> Step:
        source, target = (pipe_number(op.attributes[end], self.function) for end in ("set_pipe", "wait_pipe"))
        static = op.attributes.get("static_event_id")
        event = None if static is None else int(static.removeprefix("EVENT_ID"))
        sets = op.name == "hivm.hir.set_flag"

        def flag(group: Group) -> list[Group]:
            groups = group.split(op.operands)
            for part in groups:
                act = part.order.set_flag if sets else part.order.wait_flag
                act(source, target, int(part.values[op.operand]) if event is None else event, op)
            return groups

        return flag

    def _load(self, op: Op) -> Step:
        """Compile a load from global to on-chip memory, on MTE2; each row fills up the block that it ends in.

        A bias in L1 may have an initial value beyond its last column, which stays poisoned here: nothing may read it.
        """
        source, target = op.operands[:2]
        padding = op.operands[2] if op.attributes.get("pad_mode") == "PadValue" else None
        kind = op.types[1]
        if op.attributes.get("init_out_buffer") and not (isinstance(kind, MemRef) and kind.space == "cbuf"):
            raise UnknownOperation(f"the model does not support {place(op)} with an initial value")

        def load(group: Group) -> None:
            outside, inside = group.values[source], group.values[target]
            if not inside.elements():
                return
            require_transfer(outside, inside, op)
            group.order.use(MTE2, op, [], [inside])
            stored = group.chip.stored(inside, op)
            for part, window in self.memory.read(group, MTE2, op, outside):
                stored[part] = window.reshape(-1, *inside.sizes)
            value = np.nan if padding is None and inside.dtype in ("f16", "f32", "bf16", "f64") else -1
            group.chip.fill_block(inside, value if padding is None else group.values[padding], op)

        return load

    def _store(self, op: Op) -> Step:
        """Compile a store from on-chip to global memory, on MTE3; atomic stores follow the order of the programs."""
        source, target = op.operands[:2]
        kind = op.attributes.get("atomic_kind", "none")
        if kind != "none" and kind not in combine:
            raise UnknownOperation(f"the model does not support {place(op)} of atomic kind {kind}")

        def store(group: Group) -> None:
            inside, outside = group.values[source], group.values[target]
            if not inside.elements():
                return
            require_transfer(outside, inside, op)
            group.order.use(MTE3, op, [inside], [])
            self.memory.store(group, MTE3, op, outside, group.chip.stored(inside, op).reshape(-1, *outside.sizes), kind)

        return store

    def _access(self, op: Op) -> Step:
        """Compile `memref.load` or `memref.store`: the scalar unit moves one element between a register and memory."""
        reads = op.name == "memref.load"
        number, *indices = op.operands if reads else op.operands[1:]

        def element(group: Group) -> View:
            view: View = group.values[number]
            moves = [group.values[i] * s for i, s in zip(indices, view.strides, strict=True)]
            return replace(view, offset=view.offset + sum(moves), sizes=(), strides=())

        def load(group: Group, view: View) -> None:
            if view.on_chip:
                group.order.use(S, op, [view], [])
                value = group.chip.read(view, op)
            else:
                group.order.issue(S, op)
                windows = [window for _, window in self.memory.read(group, S, op, view)]
                value = decode(np.concatenate(windows), view.dtype)
            group.values[op.result] = value.copy() if len(group.programs) > 1 else value.item()

        def store(group: Group, view: View) -> None:
            value = group.values[op.operands[0]]
            if view.on_chip:
                group.order.use(S, op, [], [view])
                group.chip.write(view, value, op)
                return
            group.order.issue(S, op)
            stored = encode(np.broadcast_to(value, len(group.programs)), view.dtype)
            self.memory.store(group, S, op, view, stored, "none")

        def access(group: Group) -> list[Group]:
            view: View = group.values[number]
            groups = group.split(indices) if view.on_chip else [group]
            for part in groups:
                (load if reads else store)(part, element(part))
            return groups

        return access

    def _vector(self, op: Op) -> Step:
        """Compile an operation of the vector pipe, or a fill of L1, which MTE2 does."""
        compute, inputs, outputs = computation(op)
        in_l1 = any(isinstance(kind, MemRef) and kind.space == "cbuf" for kind in op.types)
        pipe = MTE2 if in_l1 and op.name == "hivm.hir.vbrc" else V

        def vector(group: Group) -> None:
            values = group.values
            reads, writes = [values[n] for n in inputs], [values[n] for n in outputs]
            require_on_chip([*reads, *writes], op)
            if all(view.elements() for view in [*reads, *writes]):
                group.order.use(pipe, op, reads, writes)
                try:
                    compute(group.chip, values)
                except (Fault, UnknownOperation):
                    raise
                except ValueError as error:  # numpy's, for shapes that do not match
                    shapes = ", ".join(str(view.sizes) for view in [*reads, *writes])
                    raise Fault(f"{place(op)} has operands of shapes {shapes}, which do not match") from error

        return vector


_STRUCTURE: dict[str, Callable[[Executor, Op], Step]] = {
    "scf.for": Executor._for,
    "scf.if": Executor._if,
    "scf.while": Executor._while,
    "hivm.hir.get_block_idx": Executor._program,
    "hivm.hir.pointer_cast": Executor._pointer_cast,
    "hivm.hir.pipe_barrier": Executor._barrier,
    "hivm.hir.set_flag": Executor._flag,
    "hivm.hir.wait_flag": Executor._flag,
    "hivm.hir.load": Executor._load,
    "hivm.hir.store": Executor._store,
    "hivm.hir.bitcast": Executor._retype,
    "memref.load": Executor._access,
    "memref.store": Executor._access,
    "memref.extract_strided_metadata": Executor._metadata,
    "memref.subview": Executor._subview,
    "memref.reinterpret_cast": Executor._reinterpret,
    "memref.collapse_shape": Executor._collapse,
    "memref.expand_shape": Executor._expand,
    "memref.cast": Executor._retype,
}


def side_by_side(program_bytes: int) -> int:
    """Return the number of programs that run side by side, if each has so many bytes of on-chip memory."""
    return min(_TOGETHER, max(1, _TOGETHER_BYTES // program_bytes))


def _layout(function: Function, available: Mapping[str, int]) -> Layout:
    """Return the on-chip memories up to the end of each one's last planned buffer, in whole blocks; raises
    `OutOfBounds` if one has fewer bytes available."""
    sizes = {}
    for space in _SPACES[function.core]:
        planned = ceil(function.planned_bytes(space), BLOCK_BYTES) * BLOCK_BYTES
        if planned > available[space]:
            name = "on-chip memory" if space == "ub" else ON_CHIP_NAMES[space]
            raise OutOfBounds(f"{function.name} needs {planned} bytes of {name}, which has {available[space]}")
        sizes[space] = max(BLOCK_BYTES, planned)
    operands = {space: available[space] for space in ("ca", "cb")} if function.core == "cube" else {}
    return Layout({**sizes, **operands})


_SPACES = {"vector": ("ub",), "cube": ("cbuf", "cc")}


def _read(plan: IndexPlan, group: Group) -> list[Any]:
    return [group.values[number] if known is None else known for known, number in plan]
