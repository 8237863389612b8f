"""The memory that all cores share: what the L2 cache holds, and the rates that it and global memory give to a core.

A kernel whose buffers fit the L2 cache and that ran before finds everything there; with an empty cache each byte is
fetched once. Buffers that do not fit are streamed: there are no partial hits, as a cyclic walk evicts each line before
it comes round. Only data that a program reads again soon enough, or that is small and shared, stays.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tilewise.db.records import L2State
from tilewise.tuner.devices.ascend_model.clock.core import Core, Memory, ProgramTime, Rate, added
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, View
from tilewise.tuner.hardware.ascend_costs import HBM_CORE_GB_S, Costs
from tilewise.tuner.hardware.ascend_parts import Part

__all__ = ["Reuse", "SharedMemory"]

_SMALL = 4
"""A buffer of at most this fraction of the L2 cache, read by all programs, stays there beside streamed ones."""

_MEASURED_GB_S = 1600
"""Nominal rate of the part on which `HBM_CORE_GB_S` was measured."""

_PAIRED = (8, 16, 20)
"""Counts of cores, in pairs on one path each, that do not yet keep the memory of `HBM_CORE_GB_S` busy."""

_VECTOR_PATHS, _CUBE_PATHS = ("l2_read_bytes", "l2_write_bytes"), ("cube_read_bytes", "fix_bytes")
"""Names of the rates of a core's own paths from and to the L2 cache."""


class Reuse(Core):
    """A core that keeps, for each place that it reads again, the bytes that it moved since it last did."""

    __slots__ = ("_last", "_moved", "again")

    def __init__(self, program: int, arguments: int) -> None:
        super().__init__(program, arguments)
        self._last: dict[tuple[object, ...], int] = {}
        self._moved = 0
        self.again: list[tuple[int, int, int]] = []
        """Per repeated read: the argument index, the bytes read, and the bytes moved in between."""

    def touched(self, view: View, inward: bool) -> None:
        size = view.bytes()
        if view.offset is UNKNOWN:  # somewhere else each time
            self._moved += size
            return
        key = (view.base, view.offset, view.sizes)
        if inward and key in self._last:
            self.again.append((view.base, size, self._moved - self._last[key]))
        self._moved += size
        self._last[key] = self._moved


@dataclass(frozen=True, slots=True)
class _Shares:
    """The shares of reads and writes, by argument index, that go to global memory rather than to the L2 cache."""

    reads: Mapping[int, float]
    writes: Mapping[int, float]


class SharedMemory:
    """One part's memory during one launch on cores of one kind. `buffers` are sizes in bytes by argument index.

    `fits` is true if the L2 cache holds all of them. `workspace` names those that a program reads only after it wrote
    them itself.
    """

    def __init__(
        self,
        part: Part,
        costs: Costs,
        buffers: Mapping[int, int],
        l2: L2State,
        *,
        core: str = "vector",
        workspace: Collection[int] = (),
    ) -> None:
        self._part, self._costs, self._buffers, self._l2 = part, costs, buffers, l2
        self._cube, self._workspace = core == "cube", workspace
        self._size = part.l2_mib * 2**20
        self.fits = sum(buffers.values()) <= self._size
        self._shares = _Shares(dict.fromkeys(buffers, 0.0), dict.fromkeys(buffers, 0.0))
        self._evicted, self._written = 0.0, 0.0

    def repeats(self, spread: Sequence[ProgramTime], programs: int) -> bool:
        """Return whether it matters how soon a program reads the same data again."""
        reads = _moved(programs, [program.reads for program in spread])
        big = (i for i, size in self._buffers.items() if size > self._size // _SMALL)
        return not self.fits and any(reads.get(i, 0) > 1.1 * self._buffers[i] for i in big)

    def settle(
        self,
        spread: Sequence[ProgramTime],
        programs: int,
        active: int,
        reuse: Reuse | None,
        missed: Mapping[int, float] | None = None,
    ) -> None:
        """Find where the data of a launch comes from and goes to. `spread` stands for all programs. `missed` is the
        share of each buffer's reads that the cache does not hold, if that was found from the order of tiles."""
        soon: dict[int, int] = {}
        for base, size, between in reuse.again if reuse else ():
            if between * active <= self._size:
                soon[base] = soon.get(base, 0) + size
        all_reads = _moved(programs, [program.reads for program in spread])
        all_writes = _moved(programs, [program.writes for program in spread])
        reads, writes = {}, {}
        for i, size in self._buffers.items():
            read = all_reads.get(i, 0)
            first = min(1.0, size / read) if read else 0.0
            if i in self._workspace:
                written = all_writes.get(i, 0)
                reads[i], writes[i] = 0.0, 0.0 if self.fits or not written else min(1.0, size / written)
            elif self.fits:
                reads[i], writes[i] = (0.0 if self._l2 is L2State.WARM else first), 0.0
            elif missed is not None:
                reads[i], writes[i] = max(first, missed.get(i, first)), 1.0
            elif size <= self._size // _SMALL:
                reads[i], writes[i] = first, 1.0
            else:
                reads[i], writes[i] = 1.0 - soon.get(i, 0) * programs / read if read else 0.0, 1.0
        self._shares = _Shares(reads, writes)
        fetched = sum(all_reads.get(i, 0) * share for i, share in reads.items())
        stored = sum(all_writes.get(i, 0) for i in self._buffers)
        allocated = max(1.0, fetched + stored)
        dirty = min(1.0, self._size / allocated) if self._l2 is L2State.DIRTY else 0.0
        self._evicted = self._costs["eviction"] * dirty
        through = sum(all_writes.get(i, 0) * share for i, share in writes.items())
        out = through + self._evicted * (fetched + stored - through)
        self._written = out / max(1.0, out + fetched)

    def rates_of_both(self, competing: float, active: int) -> Memory:
        """Return the rates of a cube core and of the vector cores beside it while `competing` of their pipes transfer,
        on `active` cube cores. Pipes of one cube core and of those beside it share its path."""
        path = self._costs["cube_read_bytes"] / max(1.0, competing / active)
        cube, vector = (_limited(self.rates(competing, 2 * active, cube=cube), path) for cube in (True, False))
        return replace(cube, vector=vector)

    def rates(self, competing: float, active: int, *, cube: bool | None = None) -> Memory:
        """Return the rates of each buffer while `competing` of the `active` cores transfer, to a core of the launch's
        kind or, if `cube` says so, of another. Two vector cores share a path, and the one beside transfers in its share
        of the time only."""
        beside = min(1.0, competing / active) if active > 1 else 0.0
        competing, clock = max(1.0, competing), self._part.clock_ghz
        cube = self._cube if cube is None else cube
        cached = self._part.l2_gb_s * self._costs["l2_share"] / competing / clock
        outside = self._global_gb_s() / competing / clock
        alone = (self._cube_gb_s(competing) if cube else _core_gb_s(beside)) / clock
        near, far = (self._costs[name] * clock for name in ("l2_latency_ns", "hbm_latency_ns"))
        reading, writing = (self._costs[name] for name in (_CUBE_PATHS if cube else _VECTOR_PATHS))
        reading *= 1.0 if cube else 2 / (1 + beside)
        inward = {
            i: Rate(
                core=1 / (share / min(alone, reading) + (1 - share) / reading),
                share=_both(outside / (1 + self._evicted), cached, share, reading if cube else None),
                latency=share * far + (1 - share) * near,
            )
            for i, share in self._shares.reads.items()
        }
        outward = {
            i: Rate(
                core=writing,
                share=1 / ((share + (1 - share) * self._evicted) / outside + (1 - share) / cached),
                latency=near,
            )
            for i, share in self._shares.writes.items()
        }
        return Memory(inward, outward, clock_ghz=clock)

    def fetching_us(self, size: float) -> float:
        """Return the microseconds in which global memory alone brings so many bytes into the cache."""
        return size * (1 + self._evicted) / self._global_gb_s() / 1e3

    def _cube_gb_s(self, competing: float) -> float:
        """Return what global memory gives one cube core while others compete: it draws as two vector cores do."""
        scale = _MEASURED_GB_S / self._part.hbm_gb_s
        return 2 * _interpolated_gb_s(2 * competing * scale)

    def _global_gb_s(self) -> float:
        """Return the rate of global memory for this launch's mix of reads and writes."""
        pure, mixed = self._costs["read_share"], self._costs["mixed_share"]
        rest = min(1.0, 3 * min(self._written, 1 - self._written))
        return self._part.global_gb_s(self._written) * (pure + (mixed - pure) * rest)


def _moved(programs: int, spread: Sequence[Mapping[int, int]]) -> Mapping[int, float]:
    """Return the bytes by argument index that all programs move, of which some stand for all."""
    return {i: size * programs / len(spread) for i, size in added(spread).items()}


def _both(outside: float, cached: float, share: float, path: float | None) -> float:
    """Return the rate of reads of which `share` comes from outside of the cache. All pass a cube core's `path`, which
    missing lines fill the cache beside; a vector core's transfers take turns."""
    if path is None:
        return 1 / (share / outside + (1 - share) / cached)
    return 1 / max(share / outside, 1 / min(cached, path))


def _limited(memory: Memory, path: float) -> Memory:
    """Return the rates with shares of at most `path` bytes a cycle."""
    inward, outward = (
        {i: replace(rate, share=min(rate.share, path)) for i, rate in rates.items()}
        for rates in (memory.inward, memory.outward)
    )
    return replace(memory, inward=inward, outward=outward)


def _core_gb_s(beside: float) -> float:
    """Return the GB/s that global memory gives one vector core while the one beside it transfers in this share of the
    time."""
    alone, paired = HBM_CORE_GB_S[1], fmean(HBM_CORE_GB_S[count] for count in _PAIRED)
    return 1 / ((1 - beside) / alone + beside / paired)


def _interpolated_gb_s(competing: float) -> float:
    """Return the GB/s that global memory gives one core while others compete, interpolated between measured counts."""
    counts = list(HBM_CORE_GB_S)
    right = bisect.bisect_left(counts, competing)
    if right == 0:
        return HBM_CORE_GB_S[counts[0]]
    if right == len(counts):
        return HBM_CORE_GB_S[counts[-1]] * counts[-1] / competing
    low, high = counts[right - 1], counts[right]
    share = (competing - low) / (high - low)
    return HBM_CORE_GB_S[low] * (1 - share) + HBM_CORE_GB_S[high] * share
