"""One program on one core: an interpreter of the scheduled code, with a clock for each pipe.

The scalar unit issues in program order. A vector operation or transfer starts once it is issued, its pipe is free and
the flags that it waits for are set. It frees its pipe after its throughput cost, and is done after its start-up or
latency as well; a barrier makes the pipe wait until all earlier operations are done. Sizes, strides and loop bounds
are computed, tensor contents are not. A scalar read from memory is unknown, as is everything computed from it, unless
the contents of its buffer are given. A branch that depends on an unknown value is timed on its longer side if that side
does nearly all of the work; any other control flow that does is refused, not guessed.

Loops in a steady state are not interpreted to their end: once two periods advance every clock and counter alike, the
middle periods are added at once. The last periods, which have the tails, are interpreted again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from tilewise.tuner.devices.ascend_model.clock.banks import least_cycles
from tilewise.tuner.devices.ascend_model.clock.core import (
    MTE2,
    MTE3,
    PIPES,
    Core,
    Memory,
    ProgramTime,
    Rate,
    S,
    V,
    pipe_number,
    pipes_of,
)
from tilewise.tuner.devices.ascend_model.clock.cube_ops import CUBE_STEPS, rate_of
from tilewise.tuner.devices.ascend_model.clock.loops import iterations
from tilewise.tuner.devices.ascend_model.clock.rows import drawn, narrow
from tilewise.tuner.devices.ascend_model.ir.hivm import (
    DYNAMIC,
    Block,
    Function,
    MemRef,
    Op,
    index_plan,
    kept_dimensions,
)
from tilewise.tuner.devices.ascend_model.ir.scalars import scalar_function, straight_line
from tilewise.tuner.devices.ascend_model.ir.values import (
    UNKNOWN,
    DependsOnContents,
    UnknownOperation,
    View,
    ceil,
    expanded,
)
from tilewise.tuner.devices.ascend_model.ir.workspace import CROSS_FLAGS
from tilewise.tuner.hardware.ascend_costs import SLOW_IN_16_BITS, Costs

__all__ = ["PIPES", "Contents", "Memory", "ProgramClock", "ProgramTime", "Rate", "Step", "UnknownOperation"]


_Values = list[Any]
Contents = Mapping[int, NDArray[Any]]
"""The numbers in some buffers, by argument index."""
_Work = tuple[int, float, int, int]
"""A vector operation's repeats, the cycles of each, its instructions, and its elements."""
Step = Callable[[_Values, Core], None]


class ProgramClock:
    """A compiled function ready to be timed: `run(arguments, program, memory)`."""

    skipping = True
    """True if the steady part of a loop is added at once."""

    def __init__(self, function: Function, costs: Costs, contents: Contents | None = None) -> None:
        self._function = function
        self._contents = contents or {}
        self.costs = costs
        self._issue_cycles = costs["vector_issue"]
        self._dispatch, self._next = costs["vector_dispatch"], costs["vector_next"]
        self._repeats_per_issue = int(costs["repeats_per_issue"])
        self.memory = Memory({}, {})
        self._steps = self.compile(function.body)

    def run(
        self, arguments: Sequence[int | float], program: int, memory: Memory, core: Core | None = None
    ) -> ProgramTime:
        """Time one program. `arguments` are the function's scalars in order: those of the kernel, then the grid. Pass
        a fresh `core` to keep its state."""
        kinds = [kind for _, kind in self._function.arguments]
        expected = len([kind for kind in kinds[1:] if not isinstance(kind, MemRef)])
        if len(arguments) != expected:
            raise ValueError(f"{self._function.name} takes {expected} scalars, {len(arguments)} were given")
        self.memory = memory
        values: _Values = [None] * self._function.values
        scalars = iter(arguments)
        for index, (number, kind) in enumerate(self._function.arguments):
            if isinstance(kind, MemRef):
                values[number] = View(index, 0, (0,), (1,), kind.item_bits)
            else:
                values[number] = 0 if index == 0 else next(scalars)  # argument 0 is the address of a sync area
        core = core or Core(program, len(kinds), pipes_of(self._function))
        for step in self._steps:
            step(values, core)
        return core.finished()

    # From operations to steps ----------------------------------------------------------------------------------

    def compile(self, block: Block) -> list[Step]:
        """Compile a block; what is done on registers between two other operations becomes one step."""
        steps: list[Step] = []
        together: list[Op] = []
        for op in block.operations:
            if op.name.startswith(_ON_REGISTERS):
                together.append(op)
            elif (step := self._step(op)) is not None:
                steps += [self._registers(together), step] if together else [step]
                together = []
        return [*steps, self._registers(together)] if together else steps

    def _registers(self, operations: Sequence[Op]) -> Step:
        """Compile operations on registers: all at once as long as every number is known, else one by one."""
        run = straight_line(operations)
        one_by_one = [self._arith(op, op.name.rpartition(".")[2]) for op in operations]
        cost, known = sum(self.scalar_cycles(op) for op in operations), True

        def registers(values: _Values, core: Core) -> None:
            nonlocal known
            if known:
                try:
                    run(values)
                except (TypeError, ArithmeticError, ValueError):
                    known = False
                else:
                    core.scalar(cost)
                    return
            for step in one_by_one:
                step(values, core)

        return registers

    def _step(self, op: Op) -> Step | None:
        dialect, _, short = op.name.rpartition(".")
        if dialect in ("arith", "math"):
            return self._arith(op, short)
        if op.name in _STRUCTURE:
            return _STRUCTURE[op.name](self, op)
        if op.name in CUBE_STEPS and self._function.core == "cube":
            return CUBE_STEPS[op.name](self, op)
        if dialect == "hivm.hir" and short in self.costs.repeat_cycles:
            return self._vector(op, short)
        raise UnknownOperation(f"the model does not know the operation {op.name}")

    def _arith(self, op: Op, short: str) -> Step:
        result = op.result
        if short == "constant":
            value = op.attributes["value"]

            def constant(values: _Values, core: Core) -> None:
                values[result] = value

            return constant
        cost = self.scalar_cycles(op)
        operands = op.operands
        if short == "select" and isinstance(op.result_type, MemRef):

            def select(values: _Values, core: Core) -> None:
                values[result] = _either_view(*(values[i] for i in operands))
                core.scalar(cost)

            return select
        function = scalar_function(op)

        def arith(values: _Values, core: Core) -> None:
            try:
                values[result] = function(*[values[i] for i in operands])
            except (TypeError, ArithmeticError, ValueError):  # an unknown operand, or undefined: n / 0, log(-1)
                values[result] = UNKNOWN
            core.scalar(cost)

        return arith

    def scalar_cycles(self, op: Op) -> float:
        """Return the cycles of an operation on registers."""
        dialect, _, short = op.name.rpartition(".")
        if short == "constant" or short in _CASTS:
            return 0.0
        return self.costs["scalar_function" if dialect == "math" else "scalar"]

    # Structure -------------------------------------------------------------------------------------------------

    def _nothing(self, op: Op) -> None:
        return None

    def _program(self, op: Op) -> Step:
        result = op.result

        def program(values: _Values, core: Core) -> None:
            values[result] = core.program

        return program

    def _if(self, op: Op) -> Step:
        """Compile a branch. One that depends on tensor contents is timed if it is a guard: on its longer side."""
        condition = op.operand
        branches = [(self.compile(region), region.yielded()) for region in op.regions]
        cost, results = self.costs["iteration"], op.results
        longer = _guarded(op)

        def branch(values: _Values, core: Core) -> None:
            core.scalar(cost)
            decided = values[condition]
            taken = longer if decided is UNKNOWN and longer is not None else 0 if _known(decided, op) else 1
            if taken < len(branches):
                steps, yielded = branches[taken]
                for step in steps:
                    step(values, core)
                _assign(values, results, yielded)

        return branch

    def _for(self, op: Op) -> Step:
        body = op.body
        steps, yielded = self.compile(body), body.yielded()
        index, carried = body.arguments[0], body.arguments[1:]
        cost, results = self.costs["iteration"], op.results
        skips = self.skipping and not any(_decides(inner) or self._reads_contents(inner) for inner in body.walk())

        def once(values: _Values, core: Core, at: int) -> None:
            values[index] = at
            core.scalar(cost)
            for step in steps:
                step(values, core)
            _assign(values, carried, yielded)

        def loop(values: _Values, core: Core) -> None:
            low, high, step = (_known(values[i], op) for i in op.operands[:3])
            _assign(values, carried, op.operands[3:])
            every = range(low, high, step)
            for at in iterations(values, core, every, carried) if skips else every:
                once(values, core, at)
            _assign(values, results, carried)

        return loop

    def _while(self, op: Op) -> Step:
        """Compile a while loop: `before` decides and passes values out of the loop or to `after`, which yields back."""
        before, after = op.regions
        deciding, steps = self.compile(before), self.compile(after)
        condition, *passed = before.operations[-1].operands
        cost = self.costs["iteration"]

        def loop(values: _Values, core: Core) -> None:
            _assign(values, before.arguments, op.operands)
            while True:
                core.scalar(cost)
                for step in deciding:
                    step(values, core)
                if not _known(values[condition], op):
                    break
                _assign(values, after.arguments, passed)
                for step in steps:
                    step(values, core)
                _assign(values, before.arguments, after.yielded())
            _assign(values, op.results, passed)

        return loop

    # Views of memory -------------------------------------------------------------------------------------------

    def _pointer_cast(self, op: Op) -> Step:
        """View on-chip memory at the first of its addresses; the others, of double buffers, lie alike in the banks."""
        kind = op.result_type
        assert isinstance(kind, MemRef)
        if DYNAMIC in kind.shape:
            raise UnknownOperation(f"the model does not support {op.name} to a dynamic shape")
        address, result = op.segments()[0][0], op.result
        made: dict[int, View] = {}

        def cast(values: _Values, core: Core) -> None:
            start = _known(values[address], op)
            if start not in made:
                made[start] = View(-1, start * 8 // kind.item_bits, kind.shape, kind.strides, kind.item_bits)
            values[result] = made[start]

        return cast

    def _subview(self, op: Op) -> Step:
        (source,), *_ = op.segments()
        plan = index_plan(op)
        result = op.result
        kind = op.result_type
        assert isinstance(kind, MemRef)
        kept = kept_dimensions(op.attributes["static_sizes"], kind.shape)

        def subview(values: _Values, core: Core) -> None:
            view: View = values[source]
            offsets, sizes, steps = (tuple(values[v] if known is None else known for known, v in part) for part in plan)
            try:
                moved = view.offset + sum(o * s for o, s in zip(offsets, view.strides, strict=True))
            except TypeError:  # its position depends on data; its size does not
                moved = UNKNOWN
            extents = tuple(max(0, _known(sizes[i], op)) for i in kept)
            strides = tuple(view.strides[i] * steps[i] for i in kept)
            values[result] = View(view.base, moved, extents, strides, view.item_bits)

        return subview

    def _reinterpret(self, op: Op) -> Step:
        (source,), *_ = op.segments()
        plan = index_plan(op)
        result = op.result

        def reinterpret(values: _Values, core: Core) -> None:
            view: View = values[source]
            offsets, sizes, strides = (
                tuple(values[v] if known is None else known for known, v in part) for part in plan
            )
            extents = tuple(_known(size, op) for size in sizes)
            values[result] = View(view.base, offsets[0], extents, strides, view.item_bits)

        return reinterpret

    def _metadata(self, op: Op) -> Step:
        """Split a view into its base, offset, sizes and strides."""
        source, (base, offset, *rest) = op.operand, op.results

        def metadata(values: _Values, core: Core) -> None:
            view: View = values[source]
            values[base] = View(view.base, 0, (), (), view.item_bits)
            for number, value in zip([offset, *rest], [view.offset, *view.sizes, *view.strides], strict=True):
                values[number] = value

        return metadata

    def _collapse(self, op: Op) -> Step:
        groups = tuple(tuple(group) for group in op.attributes["reassociation"])
        source, result = op.operand, op.result

        def collapse(values: _Values, core: Core) -> None:
            view: View = values[source]
            values[result] = view.collapsed(groups)

        return collapse

    def _expand(self, op: Op) -> Step:
        kind, source, result = op.result_type, op.operands[0], op.result
        groups = op.attributes["reassociation"]
        assert isinstance(kind, MemRef)

        def expand(values: _Values, core: Core) -> None:
            view: View = values[source]
            sizes, strides = expanded(view.sizes, view.strides, groups, kind.shape)
            values[result] = View(view.base, view.offset, sizes, strides, kind.item_bits)

        return expand

    def _retype(self, op: Op) -> Step:
        """View the same memory under the result's static type: cast, bitcast."""
        kind, source, result = op.result_type, op.operand, op.result
        assert isinstance(kind, MemRef)

        def retype(values: _Values, core: Core) -> None:
            view: View = values[source]
            if DYNAMIC in kind.shape + kind.strides and len(kind.shape) != len(view.sizes):
                raise UnknownOperation(f"the model does not support {op.name} to a dynamic shape")
            sizes = view.sizes if DYNAMIC in kind.shape else kind.shape
            strides = view.strides if DYNAMIC in kind.strides else kind.strides
            offset = view.offset
            if kind.item_bits != view.item_bits and offset is not UNKNOWN:
                offset = offset * view.item_bits // kind.item_bits
            values[result] = View(view.base, offset, sizes, strides, kind.item_bits)

        return retype

    def _unplanned(self, op: Op) -> None:
        """Refuse a tile without an address. The compiler plans all that it fills, and leaves one behind where it loses
        a value: a product that only an atomic store takes, or a sum that a trip reads while its product adds to it."""
        raise UnknownOperation(
            f"the compiled code reads a tile that nothing fills ({op.name} without an address): the compiler lost a "
            "product or a sum on its way to the vector cores"
        )

    # Pipes -----------------------------------------------------------------------------------------------------

    def _barrier(self, op: Op) -> Step:
        pipe = None if op.attributes["pipe"] == "PIPE_ALL" else pipe_number(op.attributes["pipe"], self._function)
        cost = self.costs["barrier"]

        def barrier(values: _Values, core: Core) -> None:
            core.barrier(pipe, cost)

        return barrier

    def _set_flag(self, op: Op) -> Step:
        source, target, event = _flag(op, self._function)

        def set_flag(values: _Values, core: Core) -> None:
            core.set_flag(source, target, event(values))

        return set_flag

    def _wait_flag(self, op: Op) -> Step:
        source, target, event = _flag(op, self._function)
        cost = self.costs["flag"]

        def wait_flag(values: _Values, core: Core) -> None:
            core.wait_flag(source, target, event(values), cost)

        return wait_flag

    def _transfer(self, op: Op) -> Step:
        """Compile `load` (GM to UB, on MTE2) or `store` (UB to GM, on MTE3)."""
        source, target = op.operands[:2]
        inward = op.name == "hivm.hir.load"
        pipe = MTE2 if inward else MTE3
        start, row_cycles = self.costs["mte2_start" if inward else "mte3_start"], self.costs["transfer_row"]
        issue = self.costs["vector_issue"]
        atomic = not inward and op.attributes.get("atomic_kind", "none") != "none"

        def transfer(values: _Values, core: Core) -> None:
            core.scalar(issue)
            outside: View = values[source] if inward else values[target]
            inside: View = values[target] if inward else values[source]
            size = outside.bytes()
            if size == 0:
                return
            taken = drawn(outside, self.costs)
            rate = rate_of(self.memory.inward if inward else self.memory.outward, outside, op)
            steps = max(taken.rows, inside.rows()[0]) - 1  # a run ends where either side's does
            alone = max(start + steps * row_cycles, taken.bytes / rate.core)  # starts while the last one's bytes arrive
            alone = max(alone, self._narrow_rows(outside, inside, start))
            core.occupy(pipe, max(alone, taken.bytes / rate.share), rate.latency)
            core.elements += size
            (core.reads if inward else core.writes)[outside.base] += size
            core.touched(outside, inward)
            if atomic:
                core.atomics[outside.base] += size

        return transfer

    def _narrow_rows(self, outside: View, inside: View, start: float) -> float:
        """Return the cycles of rows under a block: each takes as long as a transfer of its own, longer if it begins in
        a block of the row before it."""
        rows, crowded = narrow(outside, inside)
        return rows * (self.costs["same_block_ns"] * self.memory.clock_ghz if crowded else start)

    def _access(self, op: Op) -> Step:
        """Compile `memref.load` or `memref.store`: the scalar unit moves one element between a register and memory."""
        reads = op.name == "memref.load"
        number, *indices = op.operands if reads else op.operands[1:]
        on_chip, outside = self.costs["scalar_on_chip"], self.costs["scalar_outside"]

        def access(values: _Values, core: Core) -> None:
            view: View = values[number]
            size = ceil(view.item_bits, 8)
            core.scalar(on_chip)
            core.elements += size
            at = _place(view, [values[index] for index in indices]) if view.base >= 0 else None
            if view.base >= 0:
                core.scalar(outside * core.lines_to(view.base, at, size))
                (core.reads if reads else core.writes)[view.base] += size
            if reads:
                values[op.result] = self._content(view.base, at)

        return access

    def _reads_contents(self, op: Op) -> bool:
        """Return whether iterations may differ by what the operation reads."""
        return bool(self._contents) and op.name == "memref.load"

    def _content(self, base: int, at: int | None) -> Any:
        """Return the element at this place of a buffer, `UNKNOWN` if its contents or the place are."""
        if at is None or base not in self._contents:
            return UNKNOWN
        try:
            return int(self._contents[base][at])
        except IndexError:  # beyond the end, where execution finds it
            return UNKNOWN

    def _vector(self, op: Op, short: str) -> Step:
        """Compile an element-wise operation, fill, cast, copy or move on chip."""
        cycles, slow, widens = self.costs.repeat_cycles[short], short in SLOW_IN_16_BITS, short == "vcast"
        latency = self.costs["function_start" if short in _FUNCTIONS else "vector_start"]
        sources, targets = _operands(op)
        prepare = self._preparation(op, short, sources)
        if op.attributes.get("broadcast_dims"):
            sources = []
        both, broadcast = (*sources, *targets), bool(op.attributes.get("broadcast"))

        def work(read: Sequence[View], written: Sequence[View]) -> _Work:
            views = [*read, *written]
            each = cycles * (2 if (slow and _bits(views) == 16) or (widens and _bits(written) > _bits(read)) else 1)
            each = max(each, least_cycles(read, written[0] if written else None, self.costs))
            return (
                max(view.repeats() for view in views),
                each,
                _instructions(views, broadcast),
                max(view.elements() for view in views),
            )

        found: dict[tuple[View, ...], _Work] = {}

        def vector(values: _Values, core: Core) -> None:
            views = tuple(values[n] for n in both)
            try:
                known = found.get(views)
            except TypeError:  # a place that depends on data
                repeats, each, instructions, elements = work(views[: len(sources)], views[len(sources) :])
            else:
                if known is None:
                    known = found[views] = work(views[: len(sources)], views[len(sources) :])
                repeats, each, instructions, elements = known
            if prepare is not None:
                prepare(values, core)
            self._issue(core, repeats, each, instructions, latency)
            core.elements += elements

        return vector

    def _preparation(self, op: Op, short: str, sources: Sequence[int]) -> Step | None:
        """Compile what the compiler's public templates do before an operation: they broadcast numbers that it does not
        take, and columns, in scratch space. A selection needs its condition's address on chip, which the scalar unit
        writes between vector instructions."""
        selects, columns = short == "vsel", op.attributes.get("broadcast", ())
        numbers = len(op.segments()[0]) - len(sources) if selects or _scratch(op) else 0
        if not selects and not numbers and not columns:
            return None
        cycles, latency, barrier = self.costs.repeat_cycles["vbrc"], self.costs["vector_start"], self.costs["barrier"]

        def prepare(values: _Values, core: Core) -> None:
            for _ in range(numbers):
                self._issue(core, 1, cycles, 1, latency)
            for view in (values[source] for source in sources):
                if view.sizes[-1] == 1 and len(view.sizes) - 1 in columns:
                    self._broadcast_column(core, view)
            if selects:
                self._through_scalar(core)
            core.barrier(V, barrier)

        return prepare

    def _broadcast_column(self, core: Core, column: View) -> None:
        """Fill a block with each number of a column: eight in a repeat if they are neighbours, else one by one through
        the scalar unit."""
        rows = column.elements()
        cycles, latency = self.costs.repeat_cycles["vbrc"], self.costs["vector_start"]
        if rows > 1 and column.strides[0] == 1:
            self._issue(core, ceil(rows, 8), cycles, 1, latency)
            return
        for _ in range(rows):
            self._through_scalar(core)
            self._issue(core, 1, cycles, 1, latency)

    def _through_scalar(self, core: Core, accesses: int = 1) -> None:
        """Let the scalar unit wait for the vector pipe, access its memory, and the vector pipe wait for that. So no
        transfer further down is issued before the vector pipe is done."""
        core.set_flag(V, S, _TEMPLATE_EVENT)
        core.wait_flag(V, S, _TEMPLATE_EVENT, self.costs["flag"])
        core.scalar(accesses * self.costs["scalar_on_chip"])
        core.set_flag(S, V, _TEMPLATE_EVENT)
        core.wait_flag(S, V, _TEMPLATE_EVENT, self.costs["flag"])

    def _reduce(self, op: Op) -> Step:
        """Compile a reduction as the compiler's templates do. Over the last axis: by halving until one repeat per row
        is left (over a single row, a maximum or minimum takes the repeats one by one instead), then within a repeat per
        row, for which only a float's sum, maximum and minimum have an instruction. Over another axis: by halving until
        one row is left."""
        source, dims = op.operands[0], op.attributes["reduce_dims"]
        both, fold = self.costs["bank_conflict"], self.costs.repeat_cycles["fold"]
        latency, fold_latency = self.costs["vector_start"], self.costs["fold_start"]
        whole, sums = _folds(op), op.attributes.get("arith") == "sum"

        def reduce(values: _Values, core: Core) -> None:
            view: View = values[source]
            lanes, block = 256 * 8 // view.item_bits, 32 * 8 // view.item_bits
            outer, extent, inner = _around(view.sizes, dims)
            last = inner == 1
            in_turn = last and outer == 1 and whole and not sums
            floor = (lanes if whole else block) if last else 1
            if in_turn and extent > floor:
                self._issue(core, ceil(extent, lanes), both, 1, latency)
                core.barrier(V, self.costs["barrier"])
                extent = floor
            while extent > floor:
                extent = ceil(extent, 2)
                row = ceil(extent * inner, lanes)
                self._issue(core, outer * row, both, self._halvings(outer, row) if last else 1, latency)
                core.barrier(V, self.costs["barrier"])
            if last and whole:
                self._issue(core, outer, fold, 1, fold_latency)
            elif last:
                self._fold_blocks(core, outer, extent)
            if in_turn:
                self._through_scalar(core)
            core.elements += view.elements()

        return reduce

    def _fold_blocks(self, core: Core, rows: int, extent: int) -> None:
        """Reduce a block of each row to one number by halving: the scalar unit moves one half of each into scratch
        space, and in the end the numbers to their places."""
        while extent > 1:
            extent = ceil(extent, 2)
            self._through_scalar(core, 2 * rows * extent)
            self._issue(core, ceil(rows, 8), self.costs["bank_conflict"], 1, self.costs["vector_start"])
        self._through_scalar(core, 2 * rows)

    def _halvings(self, rows: int, row_repeats: int) -> int:
        """Return the instructions that halve each of these rows along their last axis: one per row of several repeats.
        Figures were fitted to published timings of vector kernels with this number."""
        return rows if row_repeats > 1 else 1

    def _cumulate(self, op: Op) -> Step:
        """Compile a running sum or product: each row along the axis waits for the one before it."""
        source, dims = op.operands[0], op.attributes["cum_dims"]
        cycles = self.costs.repeat_cycles["vadd"]

        def cumulate(values: _Values, core: Core) -> None:
            view: View = values[source]
            outer, extent, inner = _around(view.sizes, dims)
            row = ceil(inner * view.item_bits, 256 * 8)
            for _ in range(extent):
                self._issue(core, outer * row, cycles, outer, self.costs["vector_start"])
                core.barrier(V, self.costs["barrier"])
            core.elements += view.elements()

        return cumulate

    def _sort(self, op: Op) -> Step:
        """Compile a sort: runs of 32 sorted at once, then merged four by four; an element and its index are 8 bytes."""
        source = op.operands[0]
        cycles, latency = self.costs.repeat_cycles["vsort"], self.costs["function_start"]

        def sort(values: _Values, core: Core) -> None:
            view: View = values[source]
            outer, extent, inner = _around(view.sizes, (op.attributes["sort_axis"],))
            passes, run = 1, 32
            while run < extent:
                passes, run = passes + 1, run * 4
            for _ in range(passes):
                self._issue(core, outer * inner * ceil(extent * 8, 256), cycles, outer * inner, latency)
                core.barrier(V, self.costs["barrier"])
            core.elements += view.elements()

        return sort

    def _issue(self, core: Core, repeats: int, cycles: float, instructions: int, latency: float) -> None:
        """Occupy the vector pipe for an operation's repeats, and for setting up each of its instructions."""
        issued = max(instructions, ceil(repeats, self._repeats_per_issue))
        core.scalar(self._issue_cycles * issued)
        core.occupy(V, repeats * cycles + self._dispatch + self._next * (issued - 1), latency)


_ON_REGISTERS = ("arith.", "math.")

_TEMPLATE_EVENT = -1
"""The event of flags within a template, which the compiled code's own events do not meet."""

_FUNCTIONS = frozenset({"vexp", "vln", "vsqrt", "vdiv", "vtanh", "vsin", "vcos", "verf", "vpow"})
"""Operations whose results take longer to arrive."""

_STRUCTURE: Mapping[str, Callable[[ProgramClock, Op], Step | None]] = {
    "scf.for": ProgramClock._for,
    "scf.if": ProgramClock._if,
    "scf.while": ProgramClock._while,
    "scf.yield": ProgramClock._nothing,
    "scf.condition": ProgramClock._nothing,
    "func.return": ProgramClock._nothing,
    "annotation.mark": ProgramClock._nothing,
    "hivm.hir.set_ffts_base_addr": ProgramClock._nothing,
    "hivm.hir.set_mask_norm": ProgramClock._nothing,
    "llvm.intr.assume": ProgramClock._nothing,  # a promise to the compiler
    "hivm.hir.get_block_idx": ProgramClock._program,
    "hivm.hir.pointer_cast": ProgramClock._pointer_cast,
    "hivm.hir.pipe_barrier": ProgramClock._barrier,
    "hivm.hir.set_flag": ProgramClock._set_flag,
    "hivm.hir.wait_flag": ProgramClock._wait_flag,
    "hivm.hir.load": ProgramClock._transfer,
    "hivm.hir.store": ProgramClock._transfer,
    "hivm.hir.vreduce": ProgramClock._reduce,
    "hivm.hir.vcumsum": ProgramClock._cumulate,
    "hivm.hir.vcumprod": ProgramClock._cumulate,
    "hivm.hir.vsort": ProgramClock._sort,
    "hivm.hir.bitcast": ProgramClock._retype,
    "memref.alloc": ProgramClock._unplanned,
    "memref.load": ProgramClock._access,
    "memref.store": ProgramClock._access,
    "memref.extract_strided_metadata": ProgramClock._metadata,
    "memref.subview": ProgramClock._subview,
    "memref.reinterpret_cast": ProgramClock._reinterpret,
    "memref.collapse_shape": ProgramClock._collapse,
    "memref.expand_shape": ProgramClock._expand,
    "memref.cast": ProgramClock._retype,
}


_CASTS = ("index_cast", "index_castui", "extsi", "extui", "trunci")  # free: registers have one width


def _known(value: Any, op: Op) -> Any:
    if value is UNKNOWN:
        raise DependsOnContents(f"the model cannot follow {op.name} where it depends on tensor contents")
    return value


def _place(view: View, indices: Sequence[Any]) -> int | None:
    """Return the place of an element in its buffer, None if it depends on tensor contents."""
    try:
        return int(view.offset + sum(index * stride for index, stride in zip(indices, view.strides, strict=True)))
    except TypeError:
        return None


def _either_view(condition: Any, a: View, b: View) -> View:
    """Return the view that a condition selects; of two alike, the one at an unknown place, if it is unknown."""
    if condition is not UNKNOWN:
        return a if condition else b
    placed = replace(a, offset=UNKNOWN)
    if placed != replace(b, offset=UNKNOWN):
        raise DependsOnContents("the model cannot follow arith.select of tensors where it depends on tensor contents")
    return placed


_GUARD = 4
"""Times the operations of its other side that a branch's longer side has at least, if it is a guard: a program that
stops early for a padded row, or a step that is left out for some. Chosen by hand."""


def _guarded(op: Op) -> int | None:
    """Return the number of a branch's longer side if the branch is a guard, else None."""
    sizes = [sum(1 for inner in region.walk() if inner.name != "scf.yield") for region in op.regions]
    sizes += [0] * (2 - len(sizes))
    return sizes.index(max(sizes)) if max(sizes) >= _GUARD * min(sizes) else None


def _assign(values: _Values, targets: Sequence[int], sources: Sequence[int]) -> None:
    """Assign all values at once, as a source may be a target too."""
    for number, value in zip(targets, [values[source] for source in sources], strict=True):
        values[number] = value


def _decides(op: Op) -> bool:
    """Return whether iterations may differ in more than a tail: the operation is a branch or loop of the kernel's own,
    or a flag from or to another core, which may be behind.

    The branches that the compiler adds for tails are marked as unlikely.
    """
    if op.name in CROSS_FLAGS:
        return True
    return op.name == "scf.while" or (op.name == "scf.if" and "hivm.unlikely_condition" not in op.attributes)


def _flag(op: Op, function: Function) -> tuple[int, int, Callable[[_Values], int]]:
    source, target = (pipe_number(op.attributes[end], function) for end in ("set_pipe", "wait_pipe"))
    static = op.attributes.get("static_event_id")
    if static is not None:
        event = int(static.removeprefix("EVENT_ID"))
        return source, target, lambda values: event
    number = op.operand
    return source, target, lambda values: int(values[number])


def _around(sizes: Sequence[int], dims: Sequence[int]) -> tuple[int, int, int]:
    """Return the numbers of elements before, along and after the given neighbouring axes."""
    first, last = min(dims), max(dims)
    return math.prod(sizes[:first]), math.prod(sizes[first : last + 1]), math.prod(sizes[last + 1 :])


def _bits(views: Sequence[View]) -> int:
    return max((view.item_bits for view in views), default=0)


def _operands(op: Op) -> tuple[list[int], list[int]]:
    """Return a vector operation's memory sources and targets, without the scratch space that its last group names."""
    inputs, outputs = op.operands[:-1], op.operands[-1:]
    if "operandSegmentSizes" in op.attributes:
        inputs, outputs, *_ = op.segments()
    kinds = dict(zip(op.operands, op.types, strict=True))
    return tuple([n for n in group if isinstance(kinds[n], MemRef)] for group in (inputs, outputs))  # type: ignore[return-value]


def _folds(op: Op) -> bool:
    """Return whether an instruction reduces a repeat to one number: the sum, maximum or minimum of floats."""
    kind = op.types[0]
    floats = isinstance(kind, MemRef) and kind.dtype.lstrip("b").startswith("f")
    return floats and any(op.attributes.get("arith", "").startswith(name) for name in ("sum", "max", "min"))


def _scratch(op: Op) -> bool:
    """Return whether a vector operation has scratch space."""
    return "operandSegmentSizes" in op.attributes and len(op.segments()) > 2 and bool(op.segments()[2])


def _instructions(views: Sequence[View], broadcast: bool) -> int:
    """Return the number of vector instructions of an operation: one over contiguous operands; over rows that lie
    apart or are broadcast, one per row or one per column of 256 bytes, whichever is fewer."""
    whole = max(views, key=View.elements)
    if not broadcast and all(view.rows()[0] == 1 for view in views):
        return 1
    cols = max(1, whole.sizes[-1]) if whole.sizes else 1
    rows = whole.elements() // cols
    widest = max(view.item_bits for view in views)
    return max(1, min(rows, ceil(cols * widest, 256 * 8)))
