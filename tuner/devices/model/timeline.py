"""One program on one vector core: the scheduled code interpreted, with a clock for each pipe.

The scalar unit issues in program order; a vector operation or transfer starts when it is issued, its pipe is free and
the flags it waits for are set. An operation leaves its pipe free for the next one after its throughput cost and is
done after its start-up or latency as well; a barrier makes the pipe wait until all before it is done. Tensor contents
are not computed; sizes, strides and loop bounds are. A scalar read from memory is unknown, and so is what follows from
it; a kernel whose course depends on such a value is refused, not guessed.

Loops in a steady state are not interpreted to their end: once two periods advance every clock and counter alike, the
middle periods are added at once, and the last ones, where tails are, are interpreted again.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.tuner.devices.model.costs import Costs
from tilewise.tuner.devices.model.hivm import DYNAMIC, Block, Function, MemRef, Op

__all__ = ["PIPES", "Memory", "ProgramTime", "Rate", "Timeline", "UnknownOperation"]

PIPES = ("S", "V", "MTE2", "MTE3")
_S, _V, _MTE2, _MTE3 = range(4)
_PIPE_NUMBERS = {"PIPE_S": _S, "PIPE_V": _V, "PIPE_MTE2": _MTE2, "PIPE_MTE3": _MTE3}

_PERIOD = 2  # double buffering alternates; a period of one is a period of two as well
_SAME = 1e-6


class UnknownOperation(ValueError):
    """The compiled code holds an operation that the model has no cost or meaning for."""


class _Unknown:
    """The value of `UNKNOWN`: any use of it in Python raises TypeError, so that nothing is decided by accident."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise TypeError("an unknown value has no equal")

    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false")

    __hash__ = None  # type: ignore[assignment]


UNKNOWN = _Unknown()
"""A scalar that depends on tensor contents."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes a cycle: what a core's own transfer unit can take, and its share of what all cores draw together.

    Starting a transfer and stepping from row to row keep the unit busy, not the memory: they come on top of the one
    and are hidden behind the other.
    """

    core: float
    share: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Rates between global memory and one core, by the argument's number: caches hold some buffers, not all."""

    inward: Mapping[int, Rate]
    outward: Mapping[int, Rate]


@dataclass(frozen=True, slots=True)
class ProgramTime:
    """Cycles from a program's start to its end, and the cycles that each pipe was busy; transfers in bytes.

    `atomics` are the bytes stored by atomic operations, by the argument's number.
    """

    cycles: float
    busy: Mapping[str, float]
    bytes_in: int
    bytes_out: int
    atomics: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _View:
    """A memref at run time: `base` is the function argument's number (-1 on chip)."""

    base: int
    offset: Any
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    item_bits: int

    def elements(self) -> int:
        return math.prod(self.sizes)

    def bytes(self) -> int:
        return _ceil(self.elements() * self.item_bits, 8)

    def repeats(self) -> int:
        """Vector repeats over all elements: one takes 256 bytes in a row, or 32 bytes of each of eight rows."""
        rows, row_bytes = self.rows()
        if rows == 1:
            return _ceil(row_bytes, 256)
        return min(rows * _ceil(row_bytes, 256), _ceil(rows, 8) * _ceil(row_bytes, 32))

    def rows(self) -> tuple[int, int]:
        """How many contiguous runs the view has, and the bytes of each."""
        run, runs = 1, 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if runs == 1 and (stride == run or size == 1):
                run *= size
            else:
                runs *= size
        return runs, _ceil(run * self.item_bits, 8)


class _Core:
    """The state of one core during a program: clocks and counters in cycles."""

    __slots__ = ("atomics", "busy", "bytes_in", "bytes_out", "done", "elements", "flags", "free", "program")

    def __init__(self, program: int, arguments: int) -> None:
        self.program = program
        self.free = [0.0] * len(PIPES)
        self.done = [0.0] * len(PIPES)
        self.busy = [0.0] * len(PIPES)
        self.flags: dict[tuple[int, int, int], deque[float]] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.elements = 0
        self.atomics = [0] * arguments

    def occupy(self, pipe: int, cycles: float, latency: float) -> None:
        start = max(self.free[pipe], self.free[_S])
        self.free[pipe] = start + cycles
        self.done[pipe] = max(self.done[pipe], start + cycles + latency)
        self.busy[pipe] += cycles

    def scalar(self, cycles: float) -> None:
        self.free[_S] += cycles
        self.busy[_S] += cycles

    def barrier(self, pipe: int | None, cycles: float) -> None:
        if pipe is None:
            everything = max(*self.free, *self.done)
            self.free = [everything + cycles] * len(PIPES)
        else:
            self.free[pipe] = max(self.free[pipe], self.done[pipe], self.free[_S]) + cycles

    def set_flag(self, source: int, target: int, event: int) -> None:
        ready = max(self.free[_S], self.free[source], self.done[source])
        self.flags.setdefault((source, target, event), deque()).append(ready)

    def wait_flag(self, source: int, target: int, event: int, cycles: float) -> None:
        waiting = self.flags.get((source, target, event))
        if not waiting:
            raise ValueError(
                f"deadlock: {PIPES[target]} waits for event {event} of {PIPES[source]}, which is never set"
            )
        self.free[target] = max(self.free[target], waiting.popleft() + cycles)

    def times(self) -> list[float]:
        pending = [time for key in sorted(self.flags) for time in self.flags[key]]
        return [*self.free, *self.done, *pending]

    def counts(self) -> list[float]:
        return [*self.busy, self.bytes_in, self.bytes_out, self.elements, *self.atomics]

    def advance(self, times: Sequence[float], counts: Sequence[float], periods: int) -> None:
        """Move every clock, pending flag and counter on by so many periods."""
        n = len(PIPES)
        self.free = [t + periods * d for t, d in zip(self.free, times[:n], strict=True)]
        self.done = [t + periods * d for t, d in zip(self.done, times[n : 2 * n], strict=True)]
        rest = iter(times[2 * n :])
        for key in sorted(self.flags):
            self.flags[key] = deque(t + periods * next(rest) for t in self.flags[key])
        self.busy = [t + periods * d for t, d in zip(self.busy, counts[:n], strict=True)]
        moved = [round(periods * d) for d in counts[n:]]
        self.bytes_in += moved[0]
        self.bytes_out += moved[1]
        self.elements += moved[2]
        self.atomics = [stored + more for stored, more in zip(self.atomics, moved[3:], strict=True)]

    def copy(self) -> _Core:
        twin = _Core(self.program, 0)
        twin.free, twin.done, twin.busy = [*self.free], [*self.done], [*self.busy]
        twin.flags = {key: deque(times) for key, times in self.flags.items()}
        twin.bytes_in, twin.bytes_out = self.bytes_in, self.bytes_out
        twin.elements, twin.atomics = self.elements, [*self.atomics]
        return twin

    def become(self, other: _Core) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Clocks (with pending flags), counters and loop-carried values after an iteration, or what a period adds."""

    times: Sequence[float]
    counts: Sequence[float]
    carried: Sequence[Any]


_Values = list[Any]
_Step = Callable[[_Values, _Core], None]


class Timeline:
    """A compiled function ready to be timed: `run(arguments, program, memory)`."""

    def __init__(self, function: Function, costs: Costs) -> None:
        self._function = function
        self._costs = costs
        self._memory = Memory({}, {})
        self._steps = self._compile(function.body)

    def run(self, arguments: Sequence[int | float], program: int, memory: Memory) -> ProgramTime:
        """Time one program. `arguments` are the function's scalars in order: those of the kernel, then the grid."""
        kinds = [kind for _, kind in self._function.arguments]
        wanted = len([kind for kind in kinds[1:] if not isinstance(kind, MemRef)])
        if len(arguments) != wanted:
            raise ValueError(f"{self._function.name} takes {wanted} scalars, {len(arguments)} were given")
        self._memory = memory
        values: _Values = [None] * self._function.values
        scalars = iter(arguments)
        for position, (number, kind) in enumerate(self._function.arguments):
            if isinstance(kind, MemRef):
                values[number] = _View(position, 0, (0,), (1,), kind.item_bits)
            else:
                values[number] = 0 if position == 0 else next(scalars)  # argument 0 is the address of a sync area
        core = _Core(program, len(kinds))
        for step in self._steps:
            step(values, core)
        core.barrier(None, 0)
        busy = dict(zip(PIPES, core.busy, strict=True))
        atomics = {number: stored for number, stored in enumerate(core.atomics) if stored}
        return ProgramTime(core.free[_S], busy, core.bytes_in, core.bytes_out, atomics)

    # From operations to steps ----------------------------------------------------------------------------------

    def _compile(self, block: Block) -> list[_Step]:
        return [step for op in block.operations if (step := self._step(op)) is not None]

    def _step(self, op: Op) -> _Step | None:
        dialect, _, short = op.name.rpartition(".")
        if dialect in ("arith", "math"):
            return self._arith(op, short)
        if op.name in _STRUCTURE:
            return _STRUCTURE[op.name](self, op)
        if dialect == "hivm.hir" and short in self._costs.repeat_cycles:
            return self._vector(op, short)
        raise UnknownOperation(f"the model does not know the operation {op.name}")

    def _arith(self, op: Op, short: str) -> _Step:
        result = op.results[0]
        if short == "constant":
            value = op.attributes["value"]

            def constant(values: _Values, core: _Core) -> None:
                values[result] = value

            return constant
        function = _scalar_function(op, short)
        cost = 0.0 if short in _CASTS else self._costs["scalar_function" if op.name.startswith("math.") else "scalar"]
        operands = op.operands

        def arith(values: _Values, core: _Core) -> None:
            try:
                values[result] = function(*[values[i] for i in operands])
            except (TypeError, ArithmeticError, ValueError):  # of an unknown value, or without a value: n / 0, log(-1)
                values[result] = UNKNOWN
            core.free[_S] += cost
            core.busy[_S] += cost

        return arith

    # Structure -------------------------------------------------------------------------------------------------

    def _nothing(self, op: Op) -> None:
        return None

    def _program(self, op: Op) -> _Step:
        result = op.results[0]

        def program(values: _Values, core: _Core) -> None:
            values[result] = core.program

        return program

    def _if(self, op: Op) -> _Step:
        condition = op.operands[0]
        branches = [(self._compile(region), _yielded(region)) for region in op.regions]
        cost, results = self._costs["iteration"], op.results

        def branch(values: _Values, core: _Core) -> None:
            core.scalar(cost)
            taken = 0 if _known(values[condition], op) else 1
            if taken < len(branches):
                steps, yielded = branches[taken]
                for step in steps:
                    step(values, core)
                _assign(values, results, yielded)

        return branch

    def _for(self, op: Op) -> _Step:
        body = op.regions[0]
        steps, yielded = self._compile(body), _yielded(body)
        index, carried = body.arguments[0], body.arguments[1:]
        cost, results = self._costs["iteration"], op.results
        skips = not any(_decides(inner) for inner in body.walk())

        def once(values: _Values, core: _Core, at: int) -> None:
            values[index] = at
            core.scalar(cost)
            for step in steps:
                step(values, core)
            _assign(values, carried, yielded)

        def loop(values: _Values, core: _Core) -> None:
            low, high, step = (_known(values[i], op) for i in op.operands[:3])
            _assign(values, carried, op.operands[3:])
            if skips:
                _iterate(values, core, once, range(low, high, step), carried)
            else:
                for at in range(low, high, step):
                    once(values, core, at)
            _assign(values, results, carried)

        return loop

    def _while(self, op: Op) -> _Step:
        """`before` decides and passes values on, to `after` or out of the loop; `after` yields to `before` again."""
        before, after = op.regions
        deciding, steps = self._compile(before), self._compile(after)
        condition, *passed = before.operations[-1].operands
        cost = self._costs["iteration"]

        def loop(values: _Values, core: _Core) -> None:
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
                _assign(values, before.arguments, _yielded(after))
            _assign(values, op.results, passed)

        return loop

    # Views of memory -------------------------------------------------------------------------------------------

    def _pointer_cast(self, op: Op) -> _Step:
        kind = op.result_types[0]
        assert isinstance(kind, MemRef)
        if DYNAMIC in kind.shape:
            raise UnknownOperation(f"the model does not know the operation {op.name} to a dynamic shape")
        view = _View(-1, 0, kind.shape, kind.strides, kind.item_bits)
        result = op.results[0]

        def cast(values: _Values, core: _Core) -> None:
            values[result] = view

        return cast

    def _subview(self, op: Op) -> _Step:
        (source,), *dynamic = op.segments()
        plan = _index_plan(op, dynamic)
        result = op.results[0]
        kind = op.result_types[0]
        assert isinstance(kind, MemRef)
        kept = _kept_dimensions(op.attributes["static_sizes"], kind.shape)

        def subview(values: _Values, core: _Core) -> None:
            view: _View = values[source]
            offsets, sizes, steps = (tuple(values[v] if known is None else known for known, v in part) for part in plan)
            try:
                moved = view.offset + sum(o * s for o, s in zip(offsets, view.strides, strict=True))
            except TypeError:  # where it lies depends on data; how large it is does not
                moved = UNKNOWN
            extents = tuple(max(0, _known(sizes[i], op)) for i in kept)
            strides = tuple(view.strides[i] * steps[i] for i in kept)
            values[result] = _View(view.base, moved, extents, strides, view.item_bits)

        return subview

    def _reinterpret(self, op: Op) -> _Step:
        (source,), *dynamic = op.segments()
        plan = _index_plan(op, dynamic)
        result = op.results[0]

        def reinterpret(values: _Values, core: _Core) -> None:
            view: _View = values[source]
            offsets, sizes, strides = (
                tuple(values[v] if known is None else known for known, v in part) for part in plan
            )
            extents = tuple(_known(size, op) for size in sizes)
            values[result] = _View(view.base, offsets[0], extents, strides, view.item_bits)

        return reinterpret

    def _metadata(self, op: Op) -> _Step:
        """A view taken apart: its base, offset, sizes and strides."""
        source, (base, offset, *rest) = op.operands[0], op.results

        def metadata(values: _Values, core: _Core) -> None:
            view: _View = values[source]
            values[base] = _View(view.base, 0, (), (), view.item_bits)
            for number, value in zip([offset, *rest], [view.offset, *view.sizes, *view.strides], strict=True):
                values[number] = value

        return metadata

    def _collapse(self, op: Op) -> _Step:
        groups = op.attributes["reassociation"]
        source, result = op.operands[0], op.results[0]

        def collapse(values: _Values, core: _Core) -> None:
            view: _View = values[source]
            sizes = tuple(math.prod(view.sizes[i] for i in group) for group in groups)
            strides = tuple(_group_stride(view, group) for group in groups)
            values[result] = _View(view.base, view.offset, sizes, strides, view.item_bits)

        return collapse

    def _retype(self, op: Op) -> _Step:
        """expand_shape, cast, bitcast and the like: the same memory under the result's static type."""
        kind = op.result_types[0]
        source, result = op.operands[0], op.results[0]
        assert isinstance(kind, MemRef)

        def retype(values: _Values, core: _Core) -> None:
            view: _View = values[source]
            if DYNAMIC in kind.shape + kind.strides and len(kind.shape) != len(view.sizes):
                raise UnknownOperation(f"the model does not know the operation {op.name} to a dynamic shape")
            sizes = view.sizes if DYNAMIC in kind.shape else kind.shape
            strides = view.strides if DYNAMIC in kind.strides else kind.strides
            values[result] = _View(view.base, view.offset, sizes, strides, kind.item_bits)

        return retype

    # Pipes -----------------------------------------------------------------------------------------------------

    def _barrier(self, op: Op) -> _Step:
        pipe = None if op.attributes["pipe"] == "PIPE_ALL" else _pipe(op.attributes["pipe"])
        cost = self._costs["barrier"]

        def barrier(values: _Values, core: _Core) -> None:
            core.barrier(pipe, cost)

        return barrier

    def _set_flag(self, op: Op) -> _Step:
        source, target, event = _flag(op)

        def set_flag(values: _Values, core: _Core) -> None:
            core.set_flag(source, target, event(values))

        return set_flag

    def _wait_flag(self, op: Op) -> _Step:
        source, target, event = _flag(op)
        cost = self._costs["flag"]

        def wait_flag(values: _Values, core: _Core) -> None:
            core.wait_flag(source, target, event(values), cost)

        return wait_flag

    def _transfer(self, op: Op) -> _Step:
        """`load` (GM to UB, on MTE2) and `store` (UB to GM, on MTE3)."""
        source, target = op.operands[:2]
        inward = op.name == "hivm.hir.load"
        pipe = _MTE2 if inward else _MTE3
        start = self._costs["mte2_start" if inward else "mte3_start"]
        row_cycles, latency, short = (self._costs[n] for n in ("transfer_row", "transfer_latency", "short_row_bytes"))
        issue = self._costs["vector_issue"]
        atomic = not inward and op.attributes.get("atomic_kind", "none") != "none"

        def transfer(values: _Values, core: _Core) -> None:
            core.scalar(issue)
            outside: _View = values[source] if inward else values[target]
            inside: _View = values[target] if inward else values[source]
            size = outside.bytes()
            if size == 0:
                return
            (far, _), (near, _) = outside.rows(), inside.rows()
            rate = _rate(self._memory.inward if inward else self._memory.outward, outside, op)
            drawn = max(size, far * (short if far > 1 else 32))
            steps = max(far, near) - 1  # a run ends where it does on either side
            core.occupy(pipe, max(start + steps * row_cycles + drawn / rate.core, drawn / rate.share), latency)
            core.elements += size
            if inward:
                core.bytes_in += size
            else:
                core.bytes_out += size
                if atomic:
                    core.atomics[outside.base] += size

        return transfer

    def _access(self, op: Op) -> _Step:
        """`memref.load` and `memref.store`: one element between a register and memory, by the scalar unit."""
        reads = op.name == "memref.load"
        number = op.operands[0 if reads else 1]
        on_chip, outside = self._costs["scalar_on_chip"], self._costs["scalar_outside"]

        def access(values: _Values, core: _Core) -> None:
            view: _View = values[number]
            core.scalar(on_chip if view.base < 0 else outside)
            size = _ceil(view.item_bits, 8)
            core.elements += size
            if view.base >= 0 and reads:
                core.bytes_in += size
            elif view.base >= 0:
                core.bytes_out += size
            if reads:
                values[op.results[0]] = UNKNOWN

        return access

    def _vector(self, op: Op, short: str) -> _Step:
        """An element-wise operation, fill, cast, copy or move on chip."""
        cycles = self._costs.repeat_cycles[short]
        numbers = _operands_and_result(op)
        if op.attributes.get("broadcast_dims"):
            numbers = numbers[-1:]
        broadcast = bool(op.attributes.get("broadcast"))

        def vector(values: _Values, core: _Core) -> None:
            views = [values[n] for n in numbers]
            repeats = max(view.repeats() for view in views)
            self._issue(core, repeats, cycles, _instructions(views, broadcast))
            core.elements += max(view.elements() for view in views)

        return vector

    def _reduce(self, op: Op) -> _Step:
        """A reduction: halving additions, over the last axis until one repeat a row is left and then one repeat a row,
        over another axis until one row is left."""
        source, dims = op.operands[0], op.attributes["reduce_dims"]
        cycles = self._costs.repeat_cycles["vadd"]

        def reduce(values: _Values, core: _Core) -> None:
            view: _View = values[source]
            lanes = 256 * 8 // view.item_bits
            outer, extent, inner = _around(view.sizes, dims)
            floor = lanes if inner == 1 else 1
            while extent > floor:
                extent = _ceil(extent, 2)
                row = _ceil(extent * inner, lanes)
                self._issue(core, outer * row, cycles, min(outer, row))
                core.barrier(_V, self._costs["barrier"])
            if inner == 1:
                self._issue(core, outer, cycles, 1)
            core.elements += view.elements()

        return reduce

    def _cumulate(self, op: Op) -> _Step:
        """A running sum or product: each row along the axis waits for the one before it."""
        source, dims = op.operands[0], op.attributes["cum_dims"]
        cycles = self._costs.repeat_cycles["vadd"]

        def cumulate(values: _Values, core: _Core) -> None:
            view: _View = values[source]
            outer, extent, inner = _around(view.sizes, dims)
            row = _ceil(inner * view.item_bits, 256 * 8)
            for _ in range(extent):
                self._issue(core, outer * row, cycles, outer)
                core.barrier(_V, self._costs["barrier"])
            core.elements += view.elements()

        return cumulate

    def _sort(self, op: Op) -> _Step:
        """Runs of 32 sorted at once, then merged four by four; an element moves with its index, as 8 bytes."""
        source = op.operands[0]
        cycles = self._costs.repeat_cycles["vsort"]

        def sort(values: _Values, core: _Core) -> None:
            view: _View = values[source]
            outer, extent, inner = _around(view.sizes, (op.attributes["sort_axis"],))
            passes, run = 1, 32
            while run < extent:
                passes, run = passes + 1, run * 4
            for _ in range(passes):
                self._issue(core, outer * inner * _ceil(extent * 8, 256), cycles, outer * inner)
                core.barrier(_V, self._costs["barrier"])
            core.elements += view.elements()

        return sort

    def _issue(self, core: _Core, repeats: int, cycles: float, instructions: int) -> None:
        instructions = max(instructions, _ceil(repeats, int(self._costs["repeats_per_issue"])))
        issue = self._costs["vector_issue"] * instructions
        core.scalar(issue)
        core.occupy(_V, max(repeats * cycles, issue), self._costs["vector_start"])


_STRUCTURE: Mapping[str, Callable[[Timeline, Op], _Step | None]] = {
    "scf.for": Timeline._for,
    "scf.if": Timeline._if,
    "scf.while": Timeline._while,
    "scf.yield": Timeline._nothing,
    "scf.condition": Timeline._nothing,
    "func.return": Timeline._nothing,
    "annotation.mark": Timeline._nothing,
    "hivm.hir.set_mask_norm": Timeline._nothing,
    "hivm.hir.get_block_idx": Timeline._program,
    "hivm.hir.pointer_cast": Timeline._pointer_cast,
    "hivm.hir.pipe_barrier": Timeline._barrier,
    "hivm.hir.set_flag": Timeline._set_flag,
    "hivm.hir.wait_flag": Timeline._wait_flag,
    "hivm.hir.load": Timeline._transfer,
    "hivm.hir.store": Timeline._transfer,
    "hivm.hir.vreduce": Timeline._reduce,
    "hivm.hir.vcumsum": Timeline._cumulate,
    "hivm.hir.vcumprod": Timeline._cumulate,
    "hivm.hir.vsort": Timeline._sort,
    "hivm.hir.bitcast": Timeline._retype,
    "memref.load": Timeline._access,
    "memref.store": Timeline._access,
    "memref.extract_strided_metadata": Timeline._metadata,
    "memref.subview": Timeline._subview,
    "memref.reinterpret_cast": Timeline._reinterpret,
    "memref.collapse_shape": Timeline._collapse,
    "memref.expand_shape": Timeline._retype,
    "memref.cast": Timeline._retype,
}


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_CASTS = ("index_cast", "index_castui", "extsi", "extui", "trunci")  # free: registers have one width

_SCALARS: Mapping[str, Callable[..., Any]] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "divsi": _quotient,
    "remsi": lambda a, b: a - b * _quotient(a, b),
    "divui": operator.floordiv,
    "remui": operator.mod,
    "ceildivsi": lambda a, b: -(-a // b),
    "floordivsi": operator.floordiv,
    "maxsi": max,
    "minsi": min,
    "maxui": max,
    "minui": min,
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "shli": operator.lshift,
    "shrsi": operator.rshift,
    "select": lambda c, a, b: a if c else b,
    **dict.fromkeys(_CASTS, lambda a: a),
    "addf": operator.add,
    "subf": operator.sub,
    "mulf": operator.mul,
    "divf": operator.truediv,
    "remf": math.fmod,
    "negf": operator.neg,
    "maximumf": max,
    "minimumf": min,
    "maxnumf": max,
    "minnumf": min,
    "sitofp": float,
    "uitofp": float,
    "fptosi": int,
    "fptoui": int,
    "truncf": float,
    "extf": float,
    "absf": abs,
    "absi": abs,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "exp": math.exp,
    "exp2": lambda a: 2.0**a,
    "log": math.log,
    "log2": math.log2,
    "floor": math.floor,
    "ceil": math.ceil,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "fma": lambda a, b, c: a * b + c,
}

_INTEGER_COMPARISONS: Sequence[Callable[[Any, Any], bool]] = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.lt,  # unsigned from here on: sizes and indices, which are not negative
    operator.le,
    operator.gt,
    operator.ge,
)

_ORDERED = (operator.eq, operator.gt, operator.ge, operator.lt, operator.le, operator.ne, lambda a, b: True)
_FLOAT_COMPARISONS: Sequence[Callable[[Any, Any], bool]] = (
    lambda a, b: False,
    *_ORDERED,
    *_ORDERED[:-1],  # "or unordered": no known value here is a NaN
    lambda a, b: False,
    lambda a, b: True,
)


def _scalar_function(op: Op, short: str) -> Callable[..., Any]:
    if short == "cmpi":
        return _INTEGER_COMPARISONS[int(op.attributes["predicate"])]
    if short == "cmpf":
        return _FLOAT_COMPARISONS[int(op.attributes["predicate"])]
    if short == "extsi" and op.types[0] == "i1":
        return operator.neg
    if short in _CASTS and op.result_types[0] == "i1":
        return _lowest_bit
    if short not in _SCALARS:
        raise UnknownOperation(f"the model does not know the operation {op.name}")
    return _SCALARS[short]


def _lowest_bit(value: Any) -> Any:
    return value & 1


def _known(value: Any, op: Op) -> Any:
    if value is UNKNOWN:
        raise UnknownOperation(f"the model cannot follow {op.name} where it depends on tensor contents")
    return value


def _assign(values: _Values, targets: Sequence[int], sources: Sequence[int]) -> None:
    """All at once: a source may be a target too."""
    for number, value in zip(targets, [values[source] for source in sources], strict=True):
        values[number] = value


def _decides(op: Op) -> bool:
    """Whether iterations may differ in more than a tail: a branch or loop of the kernel's own, on any condition.

    The branches that the compiler adds for tails carry its mark of being unlikely.
    """
    return op.name == "scf.while" or (op.name == "scf.if" and "hivm.unlikely_condition" not in op.attributes)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _pipe(name: str) -> int:
    if name not in _PIPE_NUMBERS:
        raise UnknownOperation(f"the model does not know the pipe {name}; it models vector cores only")
    return _PIPE_NUMBERS[name]


def _flag(op: Op) -> tuple[int, int, Callable[[_Values], int]]:
    source, target = _pipe(op.attributes["set_pipe"]), _pipe(op.attributes["wait_pipe"])
    static = op.attributes.get("static_event_id")
    if static is not None:
        event = int(static.removeprefix("EVENT_ID"))
        return source, target, lambda values: event
    number = op.operands[0]
    return source, target, lambda values: int(values[number])


def _yielded(block: Block) -> tuple[int, ...]:
    last = block.operations[-1] if block.operations else None
    return last.operands if last is not None and last.name == "scf.yield" else ()


def _index_plan(op: Op, dynamic: Sequence[Sequence[int]]) -> list[list[tuple[int | None, int]]]:
    """Offsets, sizes and strides, each as (known value or None, else the number of the value that holds it)."""
    plan = []
    for name, numbers in zip(("static_offsets", "static_sizes", "static_strides"), dynamic, strict=True):
        rest = iter(numbers)
        plan.append([(None, next(rest)) if known == DYNAMIC else (known, -1) for known in op.attributes[name]])
    return plan


def _group_stride(view: _View, group: Sequence[int]) -> int:
    """The stride of dimensions folded into one: that of the innermost which is longer than 1."""
    longer = [view.strides[i] for i in group if view.sizes[i] != 1]
    return longer[-1] if longer else 1


def _kept_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Which of a subview's dimensions its result has: all but some of size 1."""
    kept: list[int] = []
    for position, size in enumerate(sizes):
        if len(kept) < len(shape) and size == shape[len(kept)]:
            kept.append(position)
    return kept


def _around(sizes: Sequence[int], dims: Sequence[int]) -> tuple[int, int, int]:
    """Elements before, along and after the given neighbouring axes."""
    first, last = min(dims), max(dims)
    return math.prod(sizes[:first]), math.prod(sizes[first : last + 1]), math.prod(sizes[last + 1 :])


def _rate(rates: Mapping[int, Rate], view: _View, op: Op) -> Rate:
    if view.base not in rates:
        raise UnknownOperation(f"the model does not know {op.name} of memory that is no argument of the kernel")
    return rates[view.base]


def _operands_and_result(op: Op) -> list[int]:
    """A vector operation's memory operands without the scratch space that its last group names."""
    if "operandSegmentSizes" in op.attributes:
        inputs, outputs, *_ = op.segments()
        wanted = {*inputs, *outputs}
    else:
        wanted = {*op.operands}
    pairs = zip(op.operands, op.types, strict=True)
    return [number for number, kind in pairs if isinstance(kind, MemRef) and number in wanted]


def _instructions(views: Sequence[_View], broadcast: bool) -> int:
    """Vector instructions that an operation takes: one over contiguous operands; over rows that lie apart or are
    broadcast, one a row or one a column of 256 bytes, whichever is fewer."""
    whole = max(views, key=_View.elements)
    if not broadcast and all(view.rows()[0] == 1 for view in views):
        return 1
    cols = max(1, whole.sizes[-1]) if whole.sizes else 1
    rows = whole.elements() // cols
    widest = max(view.item_bits for view in views)
    return max(1, min(rows, _ceil(cols * widest, 256 * 8)))


_Once = Callable[[_Values, _Core, int], None]


def _iterate(values: _Values, core: _Core, once: _Once, indices: range, carried: Sequence[int]) -> None:
    """Run a loop, adding the periods of its steady state at once.

    Skipping rests on sizes that, once steady, change only towards a loop's end (tails): the period after a skip must
    do the work that the skipped ones did. Where it does not, half as many periods are skipped instead.
    """
    history: list[_Snapshot] = []
    at = 0
    while at < len(indices):
        if steady := _steady(history):
            left = (len(indices) - at) // _PERIOD - 2
            periods = min(left, _until_crossing(core.times(), steady.times))
            while periods > 0 and not _skip(values, core, once, indices[at:], carried, steady, periods):
                periods //= 2
            if periods > 0:
                at += (periods + 1) * _PERIOD
                history.clear()
                continue
        once(values, core, indices[at])
        at += 1
        history.append(_Snapshot(core.times(), core.counts(), [values[n] for n in carried]))
        del history[: -2 * _PERIOD - 1]


def _skip(
    values: _Values, core: _Core, once: _Once, indices: range, carried: Sequence[int], steady: _Snapshot, periods: int
) -> bool:
    """Add `periods` at once and run the one after them; undo both, and say False, if that one did other work."""
    before, kept = core.copy(), [values[n] for n in carried]
    core.advance(steady.times, steady.counts, periods)
    for number, change in zip(carried, steady.carried, strict=True):
        values[number] = _moved(values[number], change, periods)
    counts = core.counts()
    for index in indices[periods * _PERIOD : (periods + 1) * _PERIOD]:
        once(values, core, index)
    work = slice(len(PIPES), None)
    change = [after - earlier for earlier, after in zip(counts[work], core.counts()[work], strict=True)]
    if all(abs(a - b) <= _SAME for a, b in zip(change, steady.counts[work], strict=True)):
        return True
    core.become(before)
    for number, value in zip(carried, kept, strict=True):
        values[number] = value
    return False


def _steady(history: Sequence[_Snapshot]) -> _Snapshot | None:
    """What one period adds to clocks, counters and carried values, if the last two periods added the same."""
    if len(history) < 2 * _PERIOD + 1:
        return None
    first, middle, last = history[-1 - 2 * _PERIOD], history[-1 - _PERIOD], history[-1]
    if not len(first.times) == len(middle.times) == len(last.times):
        return None
    times, counts = (
        _same_step(first.times, middle.times, last.times),
        _same_step(first.counts, middle.counts, last.counts),
    )
    moves = [_change(b, c) for b, c in zip(middle.carried, last.carried, strict=True)]
    if times is None or counts is None or None in moves:
        return None
    if moves != [_change(a, b) for a, b in zip(first.carried, middle.carried, strict=True)]:
        return None
    return _Snapshot(times, counts, moves)


def _same_step(first: Sequence[float], middle: Sequence[float], last: Sequence[float]) -> list[float] | None:
    steps = [(b - a, c - b, c) for a, b, c in zip(first, middle, last, strict=True)]
    return (
        [new for _, new, _ in steps] if all(abs(new - old) <= _SAME * (1 + abs(c)) for old, new, c in steps) else None
    )


def _change(old: Any, new: Any) -> float | int | None:
    """By how much a carried value moved: a number's difference, a view's offset; None where it is something else."""
    if isinstance(old, _View) and isinstance(new, _View):
        same = (old.base, old.sizes, old.strides) == (new.base, new.sizes, new.strides)
        return _change(old.offset, new.offset) if same else None
    if old is UNKNOWN and new is UNKNOWN:
        return 0
    if isinstance(old, (int, float)) and isinstance(new, (int, float)):
        return new - old
    return None


def _moved(value: Any, change: Any, periods: int) -> Any:
    if isinstance(value, _View):
        return _View(value.base, _moved(value.offset, change, periods), value.sizes, value.strides, value.item_bits)
    return UNKNOWN if value is UNKNOWN else value + change * periods


def _until_crossing(times: Sequence[float], rates: Sequence[float]) -> int:
    """Periods for which no clock that is behind and faster comes near one that is ahead and slower."""
    limit = 1 << 60
    margin = max(rates)
    for ahead, slow in zip(times, rates, strict=True):
        for behind, fast in zip(times, rates, strict=True):
            if fast > slow + _SAME and behind < ahead:
                limit = min(limit, max(0, int((ahead - behind - margin) / (fast - slow))))
    return limit
