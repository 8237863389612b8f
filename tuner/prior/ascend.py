"""The Ascend side of the prior: a config's expected cost, from counts alone.

A program divides the outermost axis into outer trips and, in each, all other axes into inner trips, once per pass over
the data. Double buffering lets loads, vector work and stores of different trips overlap, but where a loop runs empty,
the program waits for a load and the steps after it. A trip that reaches over an edge fills its tile first, and its load
waits for the fill. No launch ends before the memory has moved its bytes: where that takes longest, idle cores cost
nothing.

Each penalty is the factor by which the time grows when one more of these effects is counted. Their product is the
expected time, relative to the time of the same work in even shares without losses.

"Chosen by hand" below means: on design landscapes of the modelled part (landscapes/README.md), and never ablated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tilewise.kernels.spec import Axis, Config, KernelSpec, Problem, Target, Tiling, ceil_div
from tilewise.tuner.hardware.ascend_costs import FIGURES, REPEAT_CYCLES
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.prior.cube_attention import attention_penalties
from tilewise.tuner.prior.cube_cores import cube_penalties
from tilewise.tuner.prior.effects import growth, on_chip_penalty

__all__ = ["ascend_penalties"]

_SIBLING = "Ascend910B4"
"""The part whose clock, memory rate and cache are used for a part that is not listed. Chosen by hand."""

_COST = {name: figure.value for name, figure in FIGURES.items()}
"""Costs of the modelled part; docs/model.md gives the source of each."""

_INSTRUCTION = _COST["vector_dispatch"] + _COST["vector_start"] + _COST["barrier"]
"""Cycles of a vector instruction beyond its work, as the next one waits for its result, from the same table."""

_PROGRAM, _TRANSFER = _COST["program_start"], _COST["mte2_start"]
_LATENCY = _COST["l2_latency_ns"] * PARTS[_SIBLING].clock_ghz
"""Cycles to start a program, to start a transfer, and until the transfer's first byte arrives, from the same table."""

_STORES_TILES = 0.1
"""If more than this share of all bytes is written, each trip stores its tile; otherwise only results of rows are.
Chosen by hand, between element-wise kernels, which write a third of their bytes or more, and reductions of long
rows."""

_VECTOR_BYTES = 256 / (2 * REPEAT_CYCLES["vadd"].value)
"""Bytes that a vector instruction processes per cycle, from the same table, where its operands share banks: tiles of a
power of two nearly always do."""


class _Losses(NamedTuple):
    """Losses of time beyond the work, in the order in which they are counted."""

    instructions: bool = False
    """Each instruction of a trip waits for the one before."""
    reductions: bool = False
    transfers: bool = False
    """Starts of transfers, and their steps from row to row."""
    latency: bool = False
    """Loads that nothing hides: those of each loop's first trip."""
    edges: bool = False
    """Trips that reach over an edge."""
    starts: bool = False
    """Starts of programs and launches."""
    turns: bool = False
    """Loads, work and stores take turns."""


_PENALTIES = (
    *("row_tails", "column_tail", "traffic"),
    "waves",  # the work divided among programs, without losses
    *("loop_trips", "sub_tiles", "transfer", "fill", "edges", "starts", "overlap"),  # in the order of `_Losses`
)


def ascend_penalties(
    spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, target: Target
) -> dict[str, float]:
    """Return the penalties by name, each 1 or more; none for a product with vector work beside it of which the tiling
    says nothing."""
    if tiling.dot is not None:
        if tiling.dot.head:
            return attention_penalties(spec, problem, config, tiling, target)
        known = tiling.dot.alone or tiling.dot.epilogue
        return cube_penalties(spec, problem, config, tiling, target) if known else {}
    single = tiling.streamed_bytes + tiling.resident_bytes
    double = single + (tiling.streamed_bytes if tiling.doubling_bytes is None else tiling.doubling_bytes)
    in_turns = not config.get("multibuffer", True) or double > target.on_chip_bytes
    kernel = _Kernel(spec, problem, config, tiling, target)
    losses = [*[True] * (len(_Losses._fields) - 1), in_turns]
    steps = (_Losses(*losses[:count]) for count in range(len(losses) + 1))
    factors = growth(_PENALTIES, [*kernel.in_even_shares(), *map(kernel.cycles, steps)])
    return {**factors, "on_chip": on_chip_penalty(single / target.on_chip_bytes)}


class _Rates(NamedTuple):
    """Bytes per cycle of the `memory` and of one `core`; the other fields are in cycles."""

    memory: float
    core: float
    launch: float
    dispatch: float


def _rates(name: str, needed_bytes: int) -> _Rates:
    part = PARTS.get(name, PARTS[_SIBLING])
    cached = needed_bytes <= part.l2_mib * 2**20
    gb_s = part.l2_gb_s * _COST["l2_share"] if cached else part.read_gb_s * _COST["read_share"]
    launch, dispatch = (_COST[name] * part.clock_ghz * 1e3 for name in ("launch_us", "dispatch_us"))
    return _Rates(gb_s / part.clock_ghz, _COST["l2_read_bytes"], launch, dispatch)


class _Loops(NamedTuple):
    """Trips of a full program, over all passes.

    `whole` counts the inner trips that reach over no edge. A program takes `rows` of the outermost axis, `step` per
    trip; the `cut_programs` at the axis's end take `cut`.
    """

    outer: int
    inner: int
    whole: int
    rows: int
    step: int
    cut: int
    cut_programs: int

    @property
    def trips(self) -> int:
        return self.outer * self.inner


def _loops(axes: Sequence[Axis], passes: int) -> _Loops:
    """Return the trips of these axes; a single axis has inner trips only."""
    first, inner = axes[0], axes[1:] or axes
    trips = passes * math.prod(axis.trips for axis in inner)
    whole = passes * math.prod(axis.taken // axis.step for axis in inner)
    if len(axes) == 1:
        return _Loops(1, trips, whole, rows=1, step=1, cut=1, cut_programs=0)
    cut = first.size - (first.programs - 1) * first.block if first.programs > 1 else first.taken
    alike = math.prod(axis.programs for axis in inner)
    return _Loops(first.trips, trips, whole, first.taken, first.step, cut, alike)


class _Kernel:
    """A config's launches: the one that its tiling describes, and the program counts of the others."""

    def __init__(self, spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, target: Target) -> None:
        buffers, axes = spec.buffers(problem).values(), tiling.axes
        self._tiling, self._cores, self._programs = tiling, target.cores, tiling.programs
        self._rates = rates = _rates(target.name, sum(buffer.bytes for buffer in buffers))
        self._others = [math.prod(launch.grid) for launch in spec.plan(config, problem)[1:]] if spec.launches else []

        self._least = spec.bytes(problem)
        written = sum(buffer.bytes for buffer in buffers if buffer.role != "in")
        read = tiling.traffic * self._least - written
        self._passes = max(1, round(read / max(1, self._least - written)))
        stored = written if written > _STORES_TILES * self._least else 0
        self._elements = math.prod(axis.size for axis in axes)
        self._operations = spec.flops(problem) / self._elements
        """Vector operations per element that the problem needs."""
        self._done = self._operations + tiling.operations

        self._loops = _loops(axes, self._passes)
        tile = math.prod(axis.step for axis in axes)
        computed = math.prod(axis.trips * axis.step for axis in axes)
        taken = computed if tiling.moved_back else math.prod(axis.taken for axis in axes)
        self._tiles = taken * self._passes / tile
        self._bytes = taken * (read + stored) / self._elements
        share = tile / self._elements / self._passes / rates.core
        self._load, self._store, self._operation = share * read, share * stored, tile * 4 / _VECTOR_BYTES
        self._transfer = _transfer(tile, axes[-1], problem.item_bytes, target.align_bytes, rates.core)
        self._halvings = math.log2(max(1.0, axes[-1].step * 4 / 256))

    def in_even_shares(self) -> list[float]:
        """Return the cycles of the needed work, then with row tails, with both tails, and with extra reads and work."""
        *rows, last = (axis.trips * axis.step / axis.taken for axis in self._tiling.axes)
        tails = math.prod(rows)
        vector = self._elements / self._cores * 4 / _VECTOR_BYTES
        memory = self._least / self._rates.memory

        def cycles(computed: float, operations: float, traffic: float) -> float:
            moved = computed * traffic if self._tiling.moved_back else traffic
            return self._rates.launch + max(vector * computed * operations, memory * moved)

        needed = [cycles(computed, self._operations, 1.0) for computed in (1.0, tails, tails * last)]
        return [*needed, cycles(tails * last, self._done, self._tiling.traffic)]

    def cycles(self, lost: _Losses) -> float:
        """Return the cycles of all launches: full waves, and a last wave in which some programs may be cut short."""
        rates, loops, programs = self._rates, self._loops, self._programs
        waves, last = self._waves(programs)
        whole = ending = self._busy(loops.rows, lost)
        if lost.edges and loops.cut < loops.rows:
            ending = max(self._busy(loops.cut, lost), whole if last > loops.cut_programs else 0.0)
        full = max(whole, self._memory(min(programs, self._cores), lost))
        total = rates.launch + (waves - 1) * full + max(ending, self._memory(last, lost))
        if not lost.starts:
            return total
        handed = max((last - 1) * rates.dispatch, (programs - 1) * rates.dispatch - (waves - 1) * (full + _PROGRAM))
        return total + waves * _PROGRAM + handed + sum(map(self._other, self._others))

    def _busy(self, rows: int, lost: _Losses) -> float:
        """Return the cycles that a program of `rows` rows takes on its own core."""
        loops, tiling = self._loops, self._tiling
        fills = lost.edges and not tiling.moved_back
        rounds = rows // loops.step if fills else loops.outer
        smooth = rounds * (loops.whole if fills else loops.inner)
        edges = loops.trips - smooth
        transfer, latency = self._transfer * lost.transfers, _LATENCY * lost.latency
        instruction = self._operation + _INSTRUCTION * lost.instructions
        halving = (self._halvings + 1) * _INSTRUCTION + (self._operation if loops.inner > 1 else 0.0)
        reduction = tiling.reductions * halving * lost.reductions
        runs_on = loops.inner == 1 or (tiling.first_apart and not lost.turns)
        work = self._done / self._passes * instruction + (reduction / loops.inner if runs_on else 0.0)
        load, store = self._load + transfer, self._store + transfer / self._passes if self._store else 0.0

        alone = load + latency + work
        second_cut = loops.inner == 2 and loops.whole == 1 and edges > 0
        apart = latency + min(load, work + instruction * (edges > 0))
        if lost.turns:
            total = smooth * alone + loops.trips * (store + latency * bool(store) / self._passes)
            total += 0.0 if store else latency
            saved = loops.outer * apart
        else:
            period = max(load, work, store, (alone + (store + latency if tiling.in_place else 0.0)) / 2)
            empty = min(smooth, 1 if runs_on else rounds * self._passes) * lost.latency
            total = empty * alone + (smooth - empty) * period + store + latency
            saved = (loops.outer - rounds) * apart + (apart + (smooth - empty) * period if second_cut else 0.0)
        if tiling.first_apart:
            total -= saved
        if edges:
            missing = max(0.0, rows / loops.rows * self._tiles - smooth)
            total += edges * (instruction + transfer + latency + work) + missing * self._load
        return total + (reduction * (1 - 1 / loops.inner) if runs_on else loops.outer * reduction)

    def _memory(self, active: int, lost: _Losses) -> float:
        """Return the cycles that a wave of `active` programs takes of the memory.

        Other programs use the memory while one waits to be dispatched and started.
        """
        moving = self._bytes * active / self._rates.memory
        if lost.starts:
            moving -= _PROGRAM + active * self._rates.dispatch / ceil_div(self._programs, self._cores)
        return moving

    def _other(self, programs: int) -> float:
        """Return the cycles of another launch, without its work."""
        waves, last = self._waves(programs)
        return self._rates.launch + waves * _PROGRAM + (last - 1) * self._rates.dispatch + 2 * (_TRANSFER + _LATENCY)

    def _waves(self, programs: int) -> tuple[int, int]:
        """Return the number of waves and the programs of the last one."""
        waves = ceil_div(programs, self._cores)
        return waves, programs - (waves - 1) * self._cores


def _transfer(tile: int, columns: Axis, item_bytes: int, align_bytes: int, core_rate: float) -> float:
    """Return the cycles of a tile's transfer beyond its bytes: its start, and a step for each row beside its bytes.

    Whole rows that need no padding on chip are one run.
    """
    rows, row_bytes = tile // columns.step, columns.step * item_bytes
    if columns.step == columns.size and row_bytes % align_bytes == 0:
        return _TRANSFER
    return _TRANSFER + (rows - 1) * _COST["transfer_row"] + rows * _COST["row_bytes"] / core_rate
