"""The share of a cube kernel's reads that comes from global memory, which the order of its tiles decides.

The cores work on their tiles side by side. A tile's operands are read along the whole depth: a panel of rows, a panel
of columns. Cores that share a panel fetch it once; so do later tiles, as far as the L2 cache still holds it. What it
forgets is taken to be random. The panels of each program come from its own code, of which only the first trip of each
loop over the depth is interpreted.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.tuner.devices.ascend_model.clock.core import CUBE_PIPES, Core, Memory
from tilewise.tuner.devices.ascend_model.clock.half_clock import HalfClock
from tilewise.tuner.devices.ascend_model.clock.program_clock import Contents, Step
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, Op
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, View, ceil
from tilewise.tuner.devices.ascend_model.ir.workspace import CROSS_FLAGS, areas
from tilewise.tuner.hardware.ascend_costs import Costs

__all__ = ["Fetched", "fetched"]

_WAVES = 96
"""Tiles of each core that are followed; the rest of a launch is taken to be like the second half of them."""

_WITHOUT_READS = frozenset(
    (*CROSS_FLAGS, *(f"hivm.hir.{name}" for name in ("mmadL1", "set_flag", "wait_flag", "pipe_barrier", "vbrc")))
)
"""Operations that are left out: they read nothing, and flags of one trip may wait for those of another."""

_STORED = -1
"""Stands for the buffer of panels that are stored."""

_Panel = tuple[object, ...]
_Tile = dict[_Panel, tuple[int, int]]
"""Buffer and bytes by panel."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """`shares` of each buffer's reads that miss the cache, by argument index; `waves` are the bytes that miss while the
    cores work on one tile each, for all tiles in turn, or empty where there are too many."""

    shares: Mapping[int, float]
    waves: Sequence[float]


def fetched(
    function: Function,
    costs: Costs,
    arguments: Sequence[int | float],
    *,
    programs: int,
    cores: int,
    memory: Memory,
    cache_bytes: int,
    contents: Contents | None = None,
) -> Fetched:
    """Return what misses a cache of this size, which holds nothing at first."""
    clock, spaces = _FirstTrips(function, costs, contents=contents), len(areas(function))
    waves: list[list[_Tile]] = []
    turns = ceil(programs, cores)
    for turn in range(turns):
        active = range(turn * cores, min(programs, (turn + 1) * cores))
        courses = [clock.tiles(arguments, program, memory, spaces) for program in active]
        longest = max(map(len, courses))
        waves += [[course[at] for course in courses if at < len(course)] for at in range(longest)]
        if len(waves) >= _WAVES:
            break
    return _missed(waves, cache_bytes, complete=len(waves) < _WAVES)


def _missed(waves: Sequence[Sequence[_Tile]], cache_bytes: int, *, complete: bool) -> Fetched:
    """Return what misses. A full cache forgets a line at random for each it takes."""
    taken = 0.0
    held: dict[_Panel, float] = {}
    """What had been fetched in all before the wave that last read each panel."""
    read: dict[int, int] = {}
    missed: dict[int, float] = {}
    late: list[float] = []
    steady = 0 if complete else len(waves) // 2
    for number, wave in enumerate(waves):
        before = taken
        late.append(0.0)
        for panel, (buffer, size) in (one for tile in wave for one in tile.items()):
            lost = size * -math.expm1((held.get(panel, -math.inf) - before) / cache_bytes)
            held[panel] = before
            taken += lost
            late[-1] += lost if buffer != _STORED else 0.0
            if number >= steady:
                read[buffer] = read.get(buffer, 0) + size
                missed[buffer] = missed.get(buffer, 0.0) + lost
    shares = {buffer: missed[buffer] / size if size else 1.0 for buffer, size in read.items()}
    return Fetched(shares, late if complete else ())


class _FirstTrips(HalfClock):
    """A clock that interprets loops over the depth once, for the panels that they read."""

    skipping = False

    def tiles(self, arguments: Sequence[int | float], program: int, memory: Memory, spaces: int) -> list[_Tile]:
        """Return a program's tiles in order; the function has so many workspaces."""
        core = _Reads(program, len(self._function.arguments), spaces)
        with contextlib.suppress(_Followed):
            self.run(arguments, program, memory, core)
        return core.tiles or [core.current]

    def _step(self, op: Op) -> Step | None:
        if op.name in _WITHOUT_READS:
            return None
        if op.name == "scf.for" and any(inner.name == "hivm.hir.nd2nz" for inner in op.body.operations):
            return self._first_trip(op)
        return super()._step(op)

    def _first_trip(self, op: Op) -> Step:
        (body,) = op.regions
        steps, carried = self.compile(body), body.arguments[1:]

        def once(values: list[Any], core: Core) -> None:
            assert isinstance(core, _Reads)
            low, high, step = (values[number] for number in op.operands[:3])
            for number, source in zip(carried, op.operands[3:], strict=True):
                values[number] = values[source]
            core.trips = len(range(low, high, step))
            values[body.arguments[0]] = low
            for each in steps if core.trips else ():
                each(values, core)
            for number, source in zip(op.results, body.yielded() if core.trips else carried, strict=True):
                values[number] = values[source]
            core.trips = 1

        return once


class _Reads(Core):
    """A core that notes the panels of each tile. Workspace, which each program has to itself, has none."""

    __slots__ = ("arguments", "current", "tiles", "trips")

    def __init__(self, program: int, arguments: int, spaces: int) -> None:
        super().__init__(program, arguments + spaces, CUBE_PIPES)
        self.arguments = arguments
        self.tiles: list[_Tile] = []
        self.current: _Tile = {}
        self.trips = 1

    def touched(self, view: View, inward: bool) -> None:
        offset = None if view.offset is UNKNOWN else view.offset
        if view.base < self.arguments:
            panel = (view.base, offset, view.sizes, view.strides)
            self.current[panel] = (view.base if inward else _STORED, view.bytes() * self.trips)
        if not inward:
            self.tiles.append(self.current)
            self.current = {}
            if len(self.tiles) == _WAVES:
                raise _Followed


class _Followed(Exception):
    """Enough tiles of a program are known."""
