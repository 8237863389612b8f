"""A whole kernel on a part: programs dealt to vector cores, and global memory shared among them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewise.tuner.devices.ascend_model.clock.program_clock import PIPES, Memory, ProgramClock, ProgramTime, Rate
from tilewise.tuner.devices.ascend_model.clock.recording import Recording, record
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, MemRef
from tilewise.tuner.hardware.ascend_costs import HBM_CORE_GB_S, Costs
from tilewise.tuner.hardware.ascend_parts import Part

__all__ = ["KernelTime", "Machine"]

_CLOSE = 0.004
"""How closely the number of competing cores is found."""

_SAMPLED_WAVES = 16


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Modelled device time of one launch, and what the busiest core's pipes did in it; microseconds.

    `overhead_us` is what of the time no program runs in: `launch`, `start` of programs on their cores, `dispatch` (the
    last one waits to be handed out), `atomics` (waiting for others' on the same address). `reads` and `writes` are
    bytes by buffer, in the order that the machine was given.
    """

    time_us: float
    pipes_us: Mapping[str, float]
    overhead_us: Mapping[str, float]
    waves: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    @classmethod
    def in_turn(cls, times: Sequence[KernelTime]) -> KernelTime:
        """Launches one after the other: times add up, buffers stand side by side; the waves are the longest's."""
        longest = max(times, key=lambda timed: timed.time_us)
        return cls(
            time_us=sum(timed.time_us for timed in times),
            pipes_us={pipe: sum(timed.pipes_us[pipe] for timed in times) for pipe in PIPES},
            overhead_us={name: sum(timed.overhead_us[name] for timed in times) for name in longest.overhead_us},
            waves=longest.waves,
            reads=tuple(size for timed in times for size in timed.reads),
            writes=tuple(size for timed in times for size in timed.writes),
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
    """`count` waves alike, of `active` programs each: the first and the last of them, with their numbers.

    Those between move what the first does; where there are tails, the last one has them.
    """

    count: float
    active: int
    numbers: tuple[int, int]
    programs: tuple[ProgramTime, ProgramTime]
    memory: Memory

    @property
    def longest(self) -> ProgramTime:
        return max(self.programs, key=lambda timed: timed.cycles)

    @property
    def cycles(self) -> float:
        """Of the longest programs of all these waves."""
        return self.count * self.longest.cycles

    def total(self, what: Callable[[ProgramTime], float]) -> float:
        """Over all programs of all these waves."""
        first, last = self.programs
        return self.count * ((self.active - 1) * what(first) + what(last))


class Machine:
    """One part running one compiled kernel.

    `buffers` are the sizes, in bytes, of the kernel's global buffers in argument order. Where all of them fit the L2
    cache they are taken to be warm (a kernel timed by repeated calls); where they do not, the small ones still are.
    With `evicted` the cache is emptied before each run: what is read for the first time comes from global memory.
    """

    def __init__(
        self,
        part: Part,
        cores: int,
        function: Function,
        buffers: Sequence[int],
        costs: Costs,
        *,
        evicted: bool = False,
    ) -> None:
        self._part, self._cores, self._costs = part, cores, costs
        self._function, self._timeline = function, ProgramClock(function, costs)
        memrefs = [i for i, (_, kind) in enumerate(function.arguments) if isinstance(kind, MemRef)]
        l2 = part.l2_mib * 2**20
        fits = sum(buffers) <= l2
        self._buffers = dict(zip(memrefs[len(memrefs) - len(buffers) :], buffers, strict=True))
        self._warm = {i: fits or size <= l2 // 4 for i, size in self._buffers.items()}
        self._evicted = evicted
        self._first_reads = dict.fromkeys(self._buffers, 0.0)
        """Of what is read of each buffer: the share that finds the cache empty."""

    def time(self, scalars: Sequence[int | float], grid: Sequence[int]) -> KernelTime:
        """Time a launch with these scalar arguments over this grid (one to three axes)."""
        return self._launch(self._waves(*_flat(scalars, grid)), math.prod(grid))

    def record(self, scalars: Sequence[int | float], grid: Sequence[int]) -> tuple[KernelTime, Recording]:
        """The same, and the course of the longest program of the waves that take longest together."""
        programs, arguments = _flat(scalars, grid)
        waves = self._waves(programs, arguments)
        wave = max(waves, key=lambda wave: wave.cycles)
        number = wave.numbers[wave.programs.index(wave.longest)]
        recording = record(self._function, self._costs, arguments, number, wave.memory)
        return self._launch(waves, programs), recording

    def _launch(self, waves: Sequence[_Wave], programs: int) -> KernelTime:
        kilohertz = self._part.clock_ghz * 1e3  # cycles a microsecond
        start, dispatch = self._costs["program_start"] / kilohertz, self._costs["dispatch_us"]
        running = sum(wave.cycles for wave in waves) / kilohertz
        starts = sum(wave.count for wave in waves) * start
        handed = (waves[-1].active - 1) * dispatch
        first_come = (programs - 1) * dispatch + waves[-1].longest.cycles / kilohertz + start
        queued = waves[0].programs[0].cycles / kilohertz + start + self._queue(waves) * self._costs["atomic_us"]
        handed = max(handed, first_come - running - starts)
        overhead = {
            "launch": self._costs["launch_us"],
            "start": starts,
            "dispatch": handed,
            "atomics": max(0.0, queued - running - starts - handed),
        }
        left_out = self._costs["left_out"]
        return KernelTime(
            time_us=(running + sum(overhead.values())) * left_out,
            pipes_us={p: sum(w.count * w.longest.busy[p] for w in waves) / kilohertz for p in PIPES},
            overhead_us={name: time * left_out for name, time in overhead.items()},
            waves=-(-programs // self._cores),
            reads=self._moved(waves, lambda timed: timed.reads),
            writes=self._moved(waves, lambda timed: timed.writes),
        )

    def _moved(self, waves: Sequence[_Wave], what: Callable[[ProgramTime], Mapping[int, int]]) -> tuple[int, ...]:
        def of(number: int) -> int:
            return round(sum(wave.total(lambda timed: what(timed).get(number, 0)) for wave in waves))

        return tuple(of(number) for number in self._buffers)

    def _queue(self, waves: Sequence[_Wave]) -> float:
        """How many atomic stores an element of a buffer takes: on one address they pass one by one."""
        stored = self._moved(waves, lambda timed: timed.atomics)
        return max(size / whole for size, whole in zip(stored, self._buffers.values(), strict=True))

    def _waves(self, programs: int, arguments: Sequence[int | float]) -> list[_Wave]:
        """Full waves sampled, then the last, partial one.

        Programs at both ends of the full waves stand for those between them where they take equally long; where they
        do not, waves spread evenly over the launch do.
        """
        if self._evicted:
            self._count_first_reads(programs, arguments)
        full, rest = divmod(programs, self._cores)
        waves: list[_Wave] = []
        if full:
            ends = self._wave(1, 0, full * self._cores - 1, programs, arguments)
            first, last = ends.programs
            if full == 1:
                waves.append(ends)
            elif abs(first.cycles - last.cycles) <= 1e-6 * first.cycles:
                waves.append(replace(ends, count=full, programs=(first, first), numbers=(0, 0)))
            else:
                samples = min(full, _SAMPLED_WAVES)
                starts = [wave * full // samples * self._cores for wave in range(samples)]
                waves += [self._wave(full / samples, start, start, programs, arguments) for start in starts]
                tail = waves[-1]
                numbers = (tail.numbers[0], ends.numbers[1])
                waves[-1] = replace(tail, programs=(tail.programs[0], last), numbers=numbers)
        if rest:
            waves.append(self._wave(1, full * self._cores, programs - 1, programs, arguments))
        return waves

    def _wave(self, count: float, first: int, last: int, programs: int, arguments: Sequence[int | float]) -> _Wave:
        """Waves whose programs are like the first, but for the last.

        A core leaves memory to others while it computes or waits to be started, and draws on it twice while it reads
        and writes at once. So what competes is the active cores times the share of its time that a program
        transfers, both ways together, which in turn depends on the rate: a fixed point, found by secants.
        """
        active = min(programs - first, self._cores)
        waiting = self._costs["program_start"]
        waiting += active * self._costs["dispatch_us"] * self._part.clock_ghz * 1e3 / -(-programs // self._cores)

        runs: dict[float, ProgramTime] = {}

        def excess(competing: float) -> float:
            timed = runs[competing] = self._timeline.run(arguments, first, self._memory(competing))
            return active * (timed.busy["MTE2"] + timed.busy["MTE3"]) / (timed.cycles + waiting) - competing

        found = _root(excess, 2.0 * active)
        memory, once = self._memory(found), runs[found]
        ends = (once, once if last == first else self._timeline.run(arguments, last, memory))
        return _Wave(count, active, (first, last), ends, memory)

    def _count_first_reads(self, programs: int, arguments: Sequence[int | float]) -> None:
        """The first program stands for all."""
        reads = self._timeline.run(arguments, 0, self._memory(1.0)).reads
        for number, size in self._buffers.items():
            self._first_reads[number] = min(1.0, size / (reads[number] * programs)) if number in reads else 0.0

    def _memory(self, competing: float) -> Memory:
        """Rates of each buffer while so many cores' worth of transfers go on."""
        competing = max(1.0, competing)
        clock = self._part.clock_ghz
        shared = self._costs["l2_sum_gb_s"] / competing / clock
        warm = Rate(self._costs["l2_core_gb_s"] / clock, shared, self._costs["l2_start"])
        nominal = self._part.hbm_gb_s * self._costs["hbm_share"]
        cold = Rate(_hbm_core_rate(competing) / clock, nominal / competing / clock)
        kept = {i: warm if held else cold for i, held in self._warm.items()}
        inward = {i: _mixed(cold, rate, self._first_reads[i]) for i, rate in kept.items()}
        out = self._costs["ub_out_share"]
        outward = {i: Rate(rate.core * out, rate.share * out) for i, rate in kept.items()}
        return Memory(inward, outward)


def _mixed(first: Rate, rest: Rate, share: float) -> Rate:
    """The rate of data of which such a share moves at the first rate."""
    if not share:
        return rest
    return Rate(
        core=1 / (share / first.core + (1 - share) / rest.core),
        share=1 / (share / first.share + (1 - share) / rest.share),
        start=share * first.start + (1 - share) * rest.start,
    )


def _flat(scalars: Sequence[int | float], grid: Sequence[int]) -> tuple[int, list[int | float]]:
    """Programs, and the arguments of each: the kernel's scalars, then the grid's three sizes."""
    return math.prod(grid), [*scalars, *[*grid, 1, 1][:3]]


def _root(excess: Callable[[float], float], high: float) -> float:
    """Where a falling function that is not negative at 0 crosses zero: by secants, halving where one leads astray."""
    low, at, before = 0.0, high / 2, None
    while True:
        found = excess(at)
        low, high = (at, high) if found > 0 else (low, at)
        if abs(found) <= _CLOSE / 2 * at or high - low <= _CLOSE * high:
            return at
        slope = -1.0 if before is None else (found - before[1]) / (at - before[0])
        before, step = (at, found), at - found / slope if slope else high
        at = step if low < step < high else (low + high) / 2


def _hbm_core_rate(competing: float) -> float:
    """GB/s that global memory gives one core while others compete, interpolated between measured counts."""
    counts = list(HBM_CORE_GB_S)
    right = bisect.bisect_left(counts, competing)
    if right == 0:
        return HBM_CORE_GB_S[counts[0]]
    if right == len(counts):
        return HBM_CORE_GB_S[counts[-1]] * counts[-1] / competing
    low, high = counts[right - 1], counts[right]
    share = (competing - low) / (high - low)
    return HBM_CORE_GB_S[low] * (1 - share) + HBM_CORE_GB_S[high] * share
