"""What a config should cost on an NVIDIA GPU, from counting: the NVIDIA side of the prior.

A multiprocessor hides the latency of one program's loads behind the others that are resident on it, so most of what a
config costs follows from how many are: as many as threads, registers and the grid allow. Constants without another
source were chosen to rank the configs of recorded landscapes of the H200, and those of 210 more shapes of three kernels
that were tuned there.
"""

from __future__ import annotations

import math

from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, Tiling, ceil_div

__all__ = ["nvidia_penalties"]

_THREADS, _PROGRAMS, _REGISTERS = 2048, 32, 65536
"""Of a multiprocessor of compute capability 8.0 and 9.0 (CUDA C++ Programming Guide, technical specifications)."""

_OWN_REGISTERS = 32
"""Of a thread, for addresses and counters beside its share of the tiles."""

_TILE_REGISTERS = 32
"""Of a thread's share of the tiles; beyond, the compiler has little left to have loads under way with."""

_FLIGHT_BYTES = 36 << 10
"""That one multiprocessor should have under way to keep global memory busy: 4.8 TB/s over 132 of them, times a
microsecond of latency."""

_ALONE = 0.7
"""What waiting for a program's only trip costs beside the trip, where no other program is resident."""

_TRIP = 0.25
"""What each doubling of the trips costs: a trip's loads are waited for before the next one's are computed with."""

_THREAD_ELEMENTS = 4.0
"""Elements that a thread should have to work on: one vector load of float32."""

_RE_READ = 0.1
"""What reading again costs beside reading first, since the caches keep most of what a program reads twice."""

_L2_BYTES = 50 << 20
"""Of an H100 and an H200."""

_KEPT_LINES = 1.2
"""What it costs to keep lines that are read once in a second-level cache that cannot hold all of them."""


def nvidia_penalties(
    spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, target: Target
) -> dict[str, float]:
    """The penalties by name, each 1 or more."""
    threads = 32 * int(config.get("num_warps", 4))
    words = (tiling.streamed_bytes + tiling.resident_bytes) / 4 / threads
    resident = _resident(tiling, threads, words, target)
    flight = max(1, resident * tiling.streamed_bytes)
    return {
        "waves": _waves(tiling, target),
        "row_tails": math.prod(axis.trips * axis.step / axis.taken for axis in tiling.axes[:-1]),
        "column_tail": _tail(tiling),
        "traffic": 1 + (tiling.traffic - 1) * _RE_READ,
        "loop_trips": 1 + _TRIP * math.log2(tiling.trips),
        "overlap": 1 + _ALONE / (resident * tiling.axes[-1].trips),
        "in_flight": max(1.0, math.sqrt(_FLIGHT_BYTES / flight)),
        "idle_threads": math.hypot(1.0, _THREAD_ELEMENTS * threads / _block(tiling)),
        "registers": max(1.0, words / _TILE_REGISTERS) ** 0.125,
        "eviction": _KEPT_LINES if config.get("EVICT_FIRST") is False and spec.bytes(problem) > _L2_BYTES else 1.0,
    }


def _resident(tiling: Tiling, threads: int, words: float, target: Target) -> int:
    """Programs on one multiprocessor at a time."""
    registers = min(255.0, _OWN_REGISTERS + words)
    allowed = min(_THREADS // threads, _PROGRAMS, int(_REGISTERS / (registers * threads)))
    return max(1, min(allowed, ceil_div(tiling.programs, target.cores)))


def _waves(tiling: Tiling, target: Target) -> float:
    """The busiest multiprocessor's share of the work against an even share."""
    even = math.prod(axis.size for axis in tiling.axes) / target.cores
    return max(1.0, ceil_div(tiling.programs, target.cores) * _block(tiling) / even)


def _block(tiling: Tiling) -> int:
    """Elements of a program."""
    return math.prod(axis.taken for axis in tiling.axes)


def _tail(tiling: Tiling) -> float:
    axis = tiling.axes[-1]
    return axis.trips * axis.step / axis.taken
