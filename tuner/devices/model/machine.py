"""A whole kernel on a part: programs dealt to vector cores, and global memory shared among them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.tuner.devices.model.costs import HBM_CORE_GB_S, Costs
from tilewise.tuner.devices.model.hivm import Function, MemRef
from tilewise.tuner.devices.model.parts import Part
from tilewise.tuner.devices.model.timeline import PIPES, Memory, ProgramTime, Rate, Timeline

__all__ = ["KernelTime", "Machine"]

_CLOSE = 0.01
"""How closely the number of competing cores is found."""

_SAMPLED_WAVES = 16


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Modelled device time of one launch, and what the busiest core's pipes did in it; microseconds."""

    time_us: float
    pipes_us: Mapping[str, float]
    waves: int
    bytes_in: int
    bytes_out: int

    @classmethod
    def in_turn(cls, times: Sequence[KernelTime]) -> KernelTime:
        """Launches one after the other: times and bytes add up; the waves are those of the longest."""
        longest = max(times, key=lambda timed: timed.time_us)
        return cls(
            time_us=sum(timed.time_us for timed in times),
            pipes_us={pipe: sum(timed.pipes_us[pipe] for timed in times) for pipe in PIPES},
            waves=longest.waves,
            bytes_in=sum(timed.bytes_in for timed in times),
            bytes_out=sum(timed.bytes_out for timed in times),
        )

    @property
    def bound_by(self) -> str:
        return max(self.pipes_us, key=lambda pipe: self.pipes_us[pipe])

    def to_json(self) -> dict[str, Any]:
        return {"pipes_us": {p: round(t, 3) for p, t in self.pipes_us.items()}, "bound_by": self.bound_by}


@dataclass(frozen=True, slots=True)
class _Wave:
    """`count` waves alike, of `active` programs each: the longest, the first and the last of them.

    Those between move what the first does; where there are tails, the last one has them.
    """

    count: float
    active: int
    first: ProgramTime
    last: ProgramTime

    @property
    def longest(self) -> ProgramTime:
        return max(self.first, self.last, key=lambda timed: timed.cycles)

    def total(self, what: Callable[[ProgramTime], float]) -> float:
        """Over all programs of all these waves."""
        return self.count * ((self.active - 1) * what(self.first) + what(self.last))


class Machine:
    """One part running one compiled kernel.

    `buffers` are the sizes, in bytes, of the kernel's global buffers in argument order. Where all of them fit the L2
    cache they are taken to be warm (a kernel timed by repeated calls); where they do not, the small ones still are.
    """

    def __init__(self, part: Part, cores: int, function: Function, buffers: Sequence[int], costs: Costs) -> None:
        self._part, self._cores, self._costs = part, cores, costs
        self._timeline = Timeline(function, costs)
        memrefs = [i for i, (_, kind) in enumerate(function.arguments) if isinstance(kind, MemRef)]
        l2 = part.l2_mib * 2**20
        fits = sum(buffers) <= l2
        self._buffers = dict(zip(memrefs[len(memrefs) - len(buffers) :], buffers, strict=True))
        self._warm = {i: fits or size <= l2 // 4 for i, size in self._buffers.items()}

    def time(self, scalars: Sequence[int | float], grid: Sequence[int]) -> KernelTime:
        """Time a launch with these scalar arguments over this grid (one to three axes)."""
        sizes = [*grid, 1, 1][:3]
        programs = math.prod(sizes)
        waves = self._waves(programs, [*scalars, *sizes])
        kilohertz = self._part.clock_ghz * 1e3  # cycles a microsecond
        running = sum(wave.count * self._with_start(wave.longest) for wave in waves) / kilohertz
        dispatch, last = self._costs["dispatch_us"], waves[-1]
        dispatched = (programs - 1) * dispatch + self._with_start(last.longest) / kilohertz
        queued = self._with_start(waves[0].first) / kilohertz + self._queue(waves) * self._costs["atomic_us"]
        launched = self._costs["launch_us"] + max(running + (last.active - 1) * dispatch, dispatched, queued)
        return KernelTime(
            time_us=launched * self._costs["left_out"],
            pipes_us={pipe: sum(w.count * w.longest.busy[pipe] for w in waves) / kilohertz for pipe in PIPES},
            waves=-(-programs // self._cores),
            bytes_in=round(sum(wave.total(lambda timed: timed.bytes_in) for wave in waves)),
            bytes_out=round(sum(wave.total(lambda timed: timed.bytes_out) for wave in waves)),
        )

    def _with_start(self, program: ProgramTime) -> float:
        return program.cycles + self._costs["program_start"]

    def _queue(self, waves: Sequence[_Wave]) -> float:
        """How many atomic stores an element of a buffer takes: on one address they pass one by one."""

        def stored(number: int) -> float:
            return sum(wave.total(lambda timed: timed.atomics.get(number, 0)) for wave in waves)

        return max(stored(number) / size for number, size in self._buffers.items())

    def _waves(self, programs: int, arguments: Sequence[int | float]) -> list[_Wave]:
        """Full waves sampled, then the last, partial one.

        Programs at both ends of the full waves stand for those between them where they take equally long; where they
        do not, waves spread evenly over the launch do.
        """
        full, rest = divmod(programs, self._cores)
        waves: list[_Wave] = []
        if full:
            first, last = self._programs(0, full * self._cores - 1, programs, arguments)
            if full == 1:
                waves.append(_Wave(1, self._cores, first, last))
            elif abs(first.cycles - last.cycles) <= 1e-6 * first.cycles:
                waves.append(_Wave(full, self._cores, first, first))
            else:
                samples = min(full, _SAMPLED_WAVES)
                starts = [wave * full // samples * self._cores for wave in range(samples)]
                timed = [self._programs(start, start, programs, arguments)[0] for start in starts]
                waves += [_Wave(full / samples, self._cores, program, program) for program in timed[:-1]]
                waves.append(_Wave(full / samples, self._cores, timed[-1], last))
        if rest:
            start = full * self._cores
            waves.append(_Wave(1, rest, *self._programs(start, start + rest - 1, programs, arguments)))
        return waves

    def _programs(
        self, first: int, last: int, programs: int, arguments: Sequence[int | float]
    ) -> tuple[ProgramTime, ProgramTime]:
        """Two programs of a wave whose programs are like the first.

        A core leaves memory to others while it computes or waits to be started, and draws on it twice while it reads
        and writes at once. So what competes is the active cores times the share of its time that a program
        transfers, both ways together, which in turn depends on the rate: a fixed point, found by secants.
        """
        active = min(programs - first, self._cores)
        waiting = self._costs["program_start"]
        waiting += active * self._costs["dispatch_us"] * self._part.clock_ghz * 1e3 / -(-programs // self._cores)

        def excess(competing: float) -> float:
            timed = self._timeline.run(arguments, first, self._memory(competing))
            return active * (timed.busy["MTE2"] + timed.busy["MTE3"]) / (timed.cycles + waiting) - competing

        memory = self._memory(_root(excess, 2.0 * active))
        once = self._timeline.run(arguments, first, memory)
        return once, once if last == first else self._timeline.run(arguments, last, memory)

    def _memory(self, competing: float) -> Memory:
        """Rates of each buffer while so many cores' worth of transfers go on."""
        competing = max(1.0, competing)
        clock = self._part.clock_ghz
        warm = Rate(self._costs["l2_core_gb_s"] / clock, self._costs["l2_sum_gb_s"] / competing / clock)
        nominal = self._part.hbm_gb_s * self._costs["hbm_share"]
        cold = Rate(_hbm_core_rate(competing) / clock, nominal / competing / clock)
        inward = {i: warm if held else cold for i, held in self._warm.items()}
        out = self._costs["ub_out_share"]
        return Memory(inward, {i: Rate(rate.core * out, rate.share * out) for i, rate in inward.items()})


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
