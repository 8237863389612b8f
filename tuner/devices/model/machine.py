"""A whole kernel on a part: programs dealt to vector cores, and global memory shared among them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.tuner.devices.model.costs import HBM_CORE_GB_S, Costs
from tilewise.tuner.devices.model.hivm import Function, MemRef
from tilewise.tuner.devices.model.parts import Part
from tilewise.tuner.devices.model.timeline import PIPES, Memory, ProgramTime, Timeline

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

    def moved(self) -> tuple[float, float, float]:
        """Bytes in, bytes out and atomic stores, of all programs of all these waves."""
        first, last, others = self.first, self.last, self.active - 1
        return (
            self.count * (others * first.bytes_in + last.bytes_in),
            self.count * (others * first.bytes_out + last.bytes_out),
            self.count * (others * first.atomics + last.atomics),
        )


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
        kernel_arguments = memrefs[len(memrefs) - len(buffers) :]
        self._warm = {i: fits or size <= l2 // 4 for i, size in zip(kernel_arguments, buffers, strict=True)}

    def time(self, scalars: Sequence[int | float], grid: Sequence[int]) -> KernelTime:
        """Time a launch with these scalar arguments over this grid (one to three axes)."""
        sizes = [*grid, 1, 1][:3]
        programs = math.prod(sizes)
        arguments = [*scalars, *sizes]
        full, rest = divmod(programs, self._cores)
        dispatch = self._costs["dispatch_cycles"]
        waves = self._waves(full, rest, arguments)
        cycles = sum(wave.count * (wave.longest.cycles + dispatch) for wave in waves)
        busy = {pipe: sum(wave.count * wave.longest.busy[pipe] for wave in waves) for pipe in PIPES}
        moved_in, moved_out, atomics = map(sum, zip(*(wave.moved() for wave in waves), strict=True))
        kilohertz = self._part.clock_ghz * 1e3  # cycles a microsecond
        running = max(cycles / kilohertz, atomics * self._costs["atomic_us"])
        return KernelTime(
            time_us=self._costs["launch_us"] + running,
            pipes_us={pipe: cycles / kilohertz for pipe, cycles in busy.items()},
            waves=full + (rest > 0),
            bytes_in=round(moved_in),
            bytes_out=round(moved_out),
        )

    def _waves(self, full: int, rest: int, arguments: Sequence[int | float]) -> list[_Wave]:
        """Full waves sampled, then the last, partial one.

        Programs at both ends of the full waves stand for those between them where they take equally long; where they
        do not, waves spread evenly over the launch do.
        """
        waves: list[_Wave] = []
        if full:
            first = self._program(0, self._cores, arguments)
            last = self._program(full * self._cores - 1, self._cores, arguments)
            if full == 1:
                waves.append(_Wave(1, self._cores, first, last))
            elif abs(first.cycles - last.cycles) <= 1e-6 * first.cycles:
                waves.append(_Wave(full, self._cores, first, first))
            else:
                samples = min(full, _SAMPLED_WAVES)
                starts = [wave * full // samples * self._cores for wave in range(samples)]
                timed = [self._program(start, self._cores, arguments) for start in starts]
                waves += [_Wave(full / samples, self._cores, program, program) for program in timed[:-1]]
                waves.append(_Wave(full / samples, self._cores, timed[-1], last))
        if rest:
            start = full * self._cores
            ends = [self._program(index, rest, arguments) for index in (start, start + rest - 1)]
            waves.append(_Wave(1, rest, *ends))
        return waves

    def _program(self, index: int, active: int, arguments: Sequence[int | float]) -> ProgramTime:
        """One program while `active` cores run its like.

        A core leaves memory to others while it computes, and draws on it twice while it reads and writes at once. So
        what competes is the active cores times the share of its time that a program transfers, both ways together,
        which in turn depends on the rate: a fixed point, found by halving the interval that it lies in.
        """
        low, high = 0.0, 2.0 * active
        while True:
            competing = (low + high) / 2
            timed = self._timeline.run(arguments, index, self._memory(competing))
            if high - low <= _CLOSE * high:
                return timed
            transferring = timed.busy["MTE2"] + timed.busy["MTE3"]
            wanted = active * transferring / (timed.cycles + self._costs["dispatch_cycles"])
            low, high = (competing, high) if wanted > competing else (low, competing)

    def _memory(self, competing: float) -> Memory:
        """Bytes a cycle for each buffer while so many cores' worth of transfers go on."""
        competing = max(1.0, competing)
        warm = min(self._costs["l2_core_gb_s"], self._costs["l2_sum_gb_s"] / competing)
        cold = min(_hbm_core_rate(competing), self._part.hbm_gb_s * self._costs["hbm_share"] / competing)
        inward = {i: (warm if held else cold) / self._part.clock_ghz for i, held in self._warm.items()}
        return Memory(inward, {i: rate * self._costs["ub_out_share"] for i, rate in inward.items()})


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
