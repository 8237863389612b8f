"""A whole kernel on a part: programs dealt to cores, and global memory shared among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from numpy.typing import NDArray

from tilewise.db.records import L2State
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.ascend_model.clock.mixed_clock import MixedClock
from tilewise.tuner.devices.ascend_model.clock.program_clock import PIPES, Contents, Memory, ProgramClock, ProgramTime
from tilewise.tuner.devices.ascend_model.clock.recording import Recording, record
from tilewise.tuner.devices.ascend_model.clock.shared_memory import Reuse, SharedMemory
from tilewise.tuner.devices.ascend_model.clock.tile_order import fetched
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, MemRef
from tilewise.tuner.devices.ascend_model.ir.values import DependsOnContents
from tilewise.tuner.devices.ascend_model.ir.workspace import areas
from tilewise.tuner.hardware.ascend_costs import Costs
from tilewise.tuner.hardware.ascend_parts import Part
from tilewise.tuner.hardware.cube_costs import LINE

__all__ = ["KernelTime", "Machine", "cores_for"]

_CLOSE = 0.004
"""Relative tolerance to which the number of competing cores is found."""

_CLOSE_MIXED = 0.02
"""The same for mixed kernels, whose programs take three times as long to follow: half a percent of the time."""

_SAMPLED_WAVES = 16

_GOLDEN = (math.sqrt(5) - 1) / 2
"""Multiples of it, without their whole parts, are spread evenly and in step with no cycle."""

_UNEVEN = 0.05
"""Share of its first program's time by which the last program of a launch is shorter if work does not divide evenly."""

_SPREAD = 10
"""Programs that stand for all where work does not divide evenly."""

_COMPARED = 3
"""Programs of a wave that are compared where contents decide how much each does."""

_FEW_CORES = 40
"""Vector cores of the smaller parts, whose launches take less time."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Modelled device time of one launch and the time of the busiest core's pipes, in microseconds.

    `overhead_us` is the time in which no program runs: `launch`, `start` of programs on their cores, `dispatch` (the
    last program waits to be handed out), `atomics` (waiting for other atomics on the same address) and `lines` (waiting
    for other stores to the same line). `reads` and `writes` are bytes by buffer, in the order given to the machine.
    `odd_rows_us` is the part of MTE2's time whose price is least known: rows to L1 that are no whole blocks, or too far
    apart for one transfer.
    """

    time_us: float
    pipes_us: Mapping[str, float]
    overhead_us: Mapping[str, float]
    waves: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    odd_rows_us: float = 0.0

    @classmethod
    def in_turn(cls, times: Sequence[KernelTime]) -> KernelTime:
        """Combine launches that run one after the other: add up times, join buffers, take the longest one's waves."""
        longest = max(times, key=lambda timed: timed.time_us)
        return cls(
            time_us=sum(timed.time_us for timed in times),
            pipes_us={
                pipe: sum(timed.pipes_us.get(pipe, 0.0) for timed in times)
                for pipe in PIPES
                if any(pipe in timed.pipes_us for timed in times)
            },
            overhead_us={name: sum(timed.overhead_us[name] for timed in times) for name in longest.overhead_us},
            waves=longest.waves,
            reads=tuple(size for timed in times for size in timed.reads),
            writes=tuple(size for timed in times for size in timed.writes),
            odd_rows_us=sum(timed.odd_rows_us for timed in times),
        )

    @property
    def bytes_in(self) -> int:
        return sum(self.reads)

    @property
    def bytes_out(self) -> int:
        return sum(self.writes)

    @property
    def bound_by(self) -> str:
        return max(self.pipes_us, key=lambda pipe: self.pipes_us[pipe])

    def to_json(self) -> dict[str, Any]:
        return {"pipes_us": {p: round(t, 3) for p, t in self.pipes_us.items()}, "bound_by": self.bound_by}


@dataclass(frozen=True, slots=True)
class _Wave:
    """`count` equal waves of `active` programs each: the first and the last program, with their indices.

    The programs between them move the same data as the first; tails, if any, are in the last. Where work does not
    divide evenly, `spread` are programs spread over the wave, which move what all do.
    """

    count: float
    active: int
    indices: tuple[int, int]
    programs: tuple[ProgramTime, ProgramTime]
    memory: Memory
    spread: Sequence[ProgramTime] = ()

    @property
    def longest(self) -> ProgramTime:
        return max(self.programs, key=lambda timed: timed.cycles)

    @property
    def cycles(self) -> float:
        """Cycles of the longest program, added up over these waves."""
        return self.count * self.longest.cycles

    def total(self, quantity: Callable[[ProgramTime], float]) -> float:
        """Return the sum over all programs of these waves."""
        if self.spread:
            return self.count * self.active * fmean(map(quantity, self.spread))
        first, last = self.programs
        return self.count * ((self.active - 1) * quantity(first) + quantity(last))


class Machine:
    """One part running one compiled kernel on `cores` of the kind that it is compiled for.

    `buffers` are the sizes, in bytes, of the kernel's global buffers in argument order. If all of them fit the L2
    cache, they are assumed warm (a kernel timed by repeated calls); otherwise only the small ones are. With `evicted`
    the cache is emptied before each run: the first read of anything comes from global memory. `contents` returns the
    numbers in each buffer, None where they are unknown; it is called if the programs' control flow depends on them.
    """

    def __init__(
        self,
        part: Part,
        cores: int,
        function: Function,
        buffers: Sequence[int],
        costs: Costs,
        *,
        l2: L2State = L2State.WARM,
        contents: Callable[[], Sequence[NDArray[Any] | None]] | None = None,
    ) -> None:
        self._part, self._cores, self._costs, self._l2 = part, cores, costs, l2
        self._function, self._find_contents = function, contents
        self._contents: Contents = {}
        self._clock = self._new_clock()
        memrefs = [i for i, (_, kind) in enumerate(function.arguments) if isinstance(kind, MemRef)]
        self._buffers = dict(zip(memrefs[len(memrefs) - len(buffers) :], buffers, strict=True))
        self._memory = SharedMemory(part, costs, self._buffers, l2, core=function.core)
        self._late: Sequence[float] = ()
        """Bytes of each wave of tiles that come from global memory, where these are known."""
        self._guess = 1.0
        """Pipes of a mixed program that transfer at once: as if it were alone, then as in the wave before."""

    def _new_clock(self) -> MixedClock | ProgramClock:
        kind = MixedClock if self._function.vector else ProgramClock
        return kind(self._function, self._costs, self._contents)

    def time(self, scalars: Sequence[int | float], grid: Sequence[int], most: int | None = None) -> KernelTime:
        """Time a launch with these scalar arguments over this grid (one to three axes), of `most` programs if they take
        the blocks of the grid in turns."""
        programs, arguments = _flat(scalars, grid)
        programs = programs if most is None else min(programs, most)
        return self._launch(self._waves(programs, arguments), programs)

    def record(self, scalars: Sequence[int | float], grid: Sequence[int]) -> tuple[KernelTime, Recording]:
        """Time a launch, and record the longest program of the waves that together take longest."""
        programs, arguments = _flat(scalars, grid)
        waves = self._waves(programs, arguments)
        wave = max(waves, key=lambda wave: wave.cycles)
        index = wave.indices[wave.programs.index(wave.longest)]
        recording = record(self._function, self._costs, arguments, index, wave.memory, self._contents)
        return self._launch(waves, programs), recording

    def _launch(self, waves: Sequence[_Wave], programs: int) -> KernelTime:
        kilohertz = self._part.clock_ghz * 1e3  # cycles per microsecond
        start, dispatch = self._costs["program_start"] / kilohertz, self._costs["dispatch_us"]
        computing = sum(wave.cycles for wave in waves) / kilohertz
        fetching = self._late_us(computing)
        running = computing + fetching
        starts = sum(wave.count for wave in waves) * start
        handed = (waves[-1].active - 1) * dispatch
        first_come = (programs - 1) * dispatch + waves[-1].longest.cycles / kilohertz + start
        queued = waves[0].programs[0].cycles / kilohertz + start + self._queue(waves) * self._costs["atomic_us"]
        handed = max(handed, first_come - running - starts)
        more = self._costs["cold_us"] if self._l2 is not L2State.WARM else 0.0
        more += self._costs["mixed_launch_us"] if self._function.vector else 0.0
        overhead = {
            "launch": self._costs["launch_us" if self._part.cores <= _FEW_CORES else "launch_48_us"] + more,
            "start": starts,
            "dispatch": handed,
            "atomics": max(0.0, queued - running - starts - handed),
            "lines": self._shared_lines(waves),
        }
        pipes_us = {p: sum(w.count * w.longest.busy[p] for w in waves) / kilohertz for p in waves[0].longest.busy}
        return KernelTime(
            time_us=running + sum(overhead.values()),
            pipes_us={pipe: busy + (fetching if pipe == "MTE2" else 0.0) for pipe, busy in pipes_us.items()},
            overhead_us=overhead,
            waves=-(-programs // self._cores),
            reads=self._moved(waves, lambda timed: timed.reads),
            writes=self._moved(waves, lambda timed: timed.writes),
            odd_rows_us=sum(wave.count * wave.longest.odd_rows for wave in waves) / kilohertz,
        )

    def _late_us(self, computing: float) -> float:
        """Return the microseconds in which cores wait for global memory beyond those of the program's clock, which
        spreads missing lines over all tiles, although the first ones miss most of them."""
        each = computing / max(1, len(self._late))
        return sum(max(0.0, self._memory.fetching_us(size) - each) for size in self._late)

    def _moved(self, waves: Sequence[_Wave], traffic: Callable[[ProgramTime], Mapping[int, int]]) -> tuple[int, ...]:
        def of(buffer: int) -> int:
            return round(sum(wave.total(lambda timed: traffic(timed).get(buffer, 0)) for wave in waves))

        return tuple(of(buffer) for buffer in self._buffers)

    def _queue(self, waves: Sequence[_Wave]) -> float:
        """Return the most atomic stores per element of any buffer: those on one address pass one by one."""
        stored = self._moved(waves, lambda timed: timed.atomics)
        return max(size / whole for size, whole in zip(stored, self._buffers.values(), strict=True))

    def _shared_lines(self, waves: Sequence[_Wave]) -> float:
        """Return the microseconds in which programs that store less than a line each wait for one another: the memory
        takes stores to one line one by one."""
        waited = 0.0
        for wave in waves:
            first = wave.programs[0]
            for size in (first.writes[i] for i in first.writes.keys() & self._buffers - first.atomics.keys()):
                waited += wave.count * max(0, min(wave.active, LINE // size) - 1)
        return waited * self._costs["shared_line_us"]

    def _waves(self, programs: int, arguments: Sequence[int | float]) -> list[_Wave]:
        """Return waves that stand for all, with the contents of buffers if they decide what programs do."""
        try:
            return self._sampled(programs, arguments)
        except DependsOnContents:
            if self._contents or self._find_contents is None:
                raise
        found = zip(self._buffers, self._find_contents(), strict=True)
        self._contents = {argument: numbers for argument, numbers in found if numbers is not None}
        self._clock = self._new_clock()
        return self._sampled(programs, arguments)

    def _sampled(self, programs: int, arguments: Sequence[int | float]) -> list[_Wave]:
        """Return a sample of the full waves, then the last, partial one.

        If the programs at both ends of the full waves take equally long, they represent all full waves; otherwise
        waves spread evenly over the launch do. Programs of a mixed kernel may differ in a short cycle, as the blocks of
        causal queries of each head do, so that each of those waves is represented by another one of its programs.
        """
        self._settle(programs, arguments)
        full, rest = divmod(programs, self._cores)
        waves: list[_Wave] = []
        if full:
            ends = self._wave(1, 0, full * self._cores - 1, programs, arguments)
            first, last = ends.programs
            if full == 1:
                waves.append(ends)
            elif abs(first.cycles - last.cycles) <= 1e-6 * first.cycles:
                waves.append(replace(ends, count=full, programs=(first, first), indices=(0, 0)))
            else:
                samples = min(full, _SAMPLED_WAVES)
                spread = _GOLDEN if self._function.vector else 0.0
                starts = [(wave * full // samples + wave * spread % 1) * self._cores for wave in range(samples)]
                waves += [self._wave(full / samples, int(at), int(at), programs, arguments) for at in starts]
                tail = waves[-1]
                indices = (tail.indices[0], ends.indices[1])
                waves[-1] = replace(tail, programs=(tail.programs[0], last), indices=indices)
        if rest:
            waves.append(self._wave(1, full * self._cores, programs - 1, programs, arguments))
        return waves

    def _wave(self, count: float, first: int, last: int, programs: int, arguments: Sequence[int | float]) -> _Wave:
        """Return `count` waves whose programs are all like the first, except the last.

        A core leaves memory to others while it computes or waits to be started, and draws on it twice while it reads
        and writes at once. So the number of competing cores is the active ones times the share of its time that a
        program transfers, both ways together. That share depends on the rate: a fixed point, found by secants.
        """
        active = min(programs - first, self._cores)
        first = self._longest(first, active, arguments)
        spread = self._spread(first, active, arguments) if self._compares(active) else []
        busy = active * _evenness(spread)
        waiting = self._costs["program_start"]
        waiting += active * self._costs["dispatch_us"] * self._part.clock_ghz * 1e3 / -(-programs // self._cores)

        runs: dict[float, ProgramTime] = {}

        def excess(competing: float) -> float:
            timed = runs[competing] = self._clock.run(arguments, first, self._rates(competing, active))
            return busy * timed.moving / (timed.cycles + waiting) - competing

        high = 2.0 * active * len(self._function.halves())
        if self._function.vector:
            found = _root(excess, high, min(high / 2, self._guess * active), _CLOSE_MIXED)
        else:
            found = _root(excess, high)
        self._guess = found / active
        memory, once = self._rates(found, active), runs[found]
        ends = (once, once if last == first else self._clock.run(arguments, last, memory))
        return _Wave(count, active, (first, last), ends, memory, spread if len(spread) > 1 else ())

    def _spread(self, first: int, programs: int, arguments: Sequence[int | float]) -> Sequence[ProgramTime]:
        """Return programs that move what all of these do: the first one or, where the last one has less to do, some
        that are spread evenly over them."""
        alone = self._rates(1.0, 1)
        longest = self._clock.run(arguments, first, alone)
        if not self._compares(programs):
            return [longest]
        shortest = self._clock.run(arguments, first + programs - 1, alone)
        if shortest.cycles >= (1 - _UNEVEN) * longest.cycles:
            return [longest]
        samples = min(programs, _SPREAD)
        return [
            self._clock.run(arguments, first + int((at + 0.5) * programs / samples), alone) for at in range(samples)
        ]

    def _compares(self, programs: int) -> bool:
        """Return whether the last of these programs is compared with the first: not in a mixed kernel, nor where
        contents decide what each does."""
        return programs > 1 and not self._function.vector and not self._contents

    def _longest(self, first: int, active: int, arguments: Sequence[int | float]) -> int:
        """Return the program that stands for a wave: the first one or, where contents decide how much each does, the
        longest of some."""
        if not self._contents:
            return first
        alone = self._rates(1.0, 1)
        some = dict.fromkeys(first + at * active // _COMPARED for at in range(_COMPARED))
        return max(some, key=lambda program: self._clock.run(arguments, program, alone).cycles)

    def _settle(self, programs: int, arguments: Sequence[int | float]) -> None:
        """Let the memory find where this launch's data comes from; the first program stands for all."""
        if self._function.vector:
            workspace = {
                len(self._function.arguments) + at: programs * area.size
                for at, area in enumerate(areas(self._function))
            }
            whole = self._buffers | workspace
            self._memory = SharedMemory(
                self._part, self._costs, whole, self._l2, core=self._function.core, workspace=workspace
            )
        spread = self._spread(0, programs, arguments)
        first = spread[0]
        reuse, missed = None, None
        self._late = ()
        alone = self._function.vector is None
        if self._function.core == "cube" and not (self._memory.fits and (self._l2 is L2State.WARM or not alone)):
            found = fetched(
                self._function,
                self._costs,
                arguments,
                programs=programs,
                cores=self._cores,
                memory=self._memory.rates(1.0, 1),
                cache_bytes=self._part.l2_mib * 2**20,
                contents=self._contents,
            )
            missed, self._late = found.shares, found.waves if alone else ()
        elif alone and self._memory.repeats(spread, programs):
            reuse = Reuse(0, len(self._function.arguments))
            _Whole(self._function, self._costs, self._contents).run(arguments, 0, self._memory.rates(1.0, 1), reuse)
        self._memory.settle(spread, programs, min(programs, self._cores), reuse, missed)
        self._guess = first.moving / max(1.0, first.cycles)

    def _rates(self, competing: float, active: int) -> Memory:
        if self._function.vector:
            return self._memory.rates_of_both(competing, active)
        return self._memory.rates(competing, active)


class _Whole(ProgramClock):
    """A clock that interprets loops to their end, so that its core sees every transfer."""

    skipping = False


def _evenness(spread: Sequence[ProgramTime]) -> float:
    """Return the mean time of programs, as a share of the longest one's: all of it if they were not compared."""
    if len(spread) <= 1:
        return 1.0
    return fmean(timed.cycles for timed in spread) / max(timed.cycles for timed in spread)


def cores_for(function: Function, target: Target) -> int:
    """Return the number of cores on which a function's programs run."""
    return target.matrix_cores if function.core == "cube" else target.cores


def _flat(scalars: Sequence[int | float], grid: Sequence[int]) -> tuple[int, list[int | float]]:
    """Return the number of programs, and each one's arguments: the kernel's scalars, then the grid's three sizes."""
    return math.prod(grid), [*scalars, *[*grid, 1, 1][:3]]


def _root(excess: Callable[[float], float], high: float, start: float | None = None, close: float = _CLOSE) -> float:
    """Find the zero of a falling function that is not negative at 0: by secants, or by halving if one leads outside.

    `start` is a first guess (default: half of `high`), `close` the relative tolerance.
    """
    low, before = 0.0, None
    at = high / 2 if start is None else start
    while True:
        found = excess(at)
        low, high = (at, high) if found > 0 else (low, at)
        if abs(found) <= close / 2 * at or high - low <= close * high:
            return at
        slope = -1.0 if before is None else (found - before[1]) / (at - before[0])
        before, step = (at, found), at - found / slope if slope else high
        at = step if low < step < high else (low + high) / 2
