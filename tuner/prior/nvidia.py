"""The NVIDIA side of the prior: a config's expected cost, from counts.

A multiprocessor hides the latency of one program's loads behind the other programs that are resident on it. A config's
cost therefore follows mostly from the number of resident programs, which threads, registers and the grid limit. "Chosen
by hand" below means: to rank the configs of the eight recorded landscapes of the H200 (landscapes/README.md), and those
of 210 more shapes of three kernels that were tuned there, for which there is no file. No constant was ablated.
"""

from __future__ import annotations

import math

from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, Tiling, ceil_div
from tilewise.tuner.hardware.targets import memory_share
from tilewise.tuner.prior.tensor_cores import tensor_core_penalties

__all__ = ["nvidia_penalties"]

_THREADS, _PROGRAMS, _REGISTERS = 2048, 32, 65536
"""Limits of a multiprocessor: threads, programs and registers, at compute capability 8.0 and 9.0 (CUDA C++ Programming
Guide, technical specifications)."""

_OWN_REGISTERS = 32
"""Registers of a thread for addresses and counters, besides its share of the tiles. Chosen by hand."""

_TILE_REGISTERS = 32
"""Registers for a thread's share of the tiles; beyond these, the compiler has few left to keep loads in flight. Chosen
by hand, as is the exponent of the penalty."""

_FLIGHT_BYTES = 36 << 10
"""Bytes that one multiprocessor of an H200 should keep in flight so that global memory is busy: 4.8 TB/s over 132
multiprocessors (its data sheet), times a microsecond of latency, which was chosen by hand. Other parts have it by their
data sheets."""

_ALONE = 0.7
"""Cost of waiting for a program's only trip, relative to the trip, where no other program is resident. Chosen by
hand."""

_TRIP = 0.25
"""Cost of each doubling of the trips: a program waits for one trip's loads before it computes with the next one's.
Chosen by hand."""

_THREAD_ELEMENTS = 4.0
"""Elements that each thread should work on: one vector load of float32. Chosen by hand."""

_RE_READ = 0.1
"""Cost of reading data again, relative to the first read: the caches keep most of the data that is read twice. Chosen
by hand."""

_L2_BYTES = 50 << 20
"""Second-level cache of an H100 and an H200, from their data sheets."""

_INSTRUCTIONS_A_BYTE = 128 * 1.755e9 / (4.8e12 / 132)
"""Instructions of a lane that a multiprocessor issues while its share of the bytes moves: four warps per clock (CUDA
C++ Programming Guide, arithmetic instructions) at the boost clock of an H200, whose memory moves 4.8 TB/s for 132
multiprocessors (its data sheet)."""

_REDUCTION = 2.0
"""Instructions per element of a reduction over threads: one, and its share of five exchanges. Chosen by hand."""

_KEPT_LINES = 1.2
"""Cost of keeping lines that are read once in a second-level cache that cannot hold all of them. Chosen by hand."""


def nvidia_penalties(
    spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, target: Target
) -> dict[str, float]:
    """Return the penalties by name, each 1 or more."""
    if tiling.dot is not None:
        return tensor_core_penalties(spec, problem, config, tiling, target)
    threads = 32 * int(config.get("num_warps", 4))
    words = (tiling.streamed_bytes + tiling.resident_bytes) / 4 / threads
    resident = _resident(tiling, threads, words, target)
    share = memory_share(target)
    flight = max(1, resident * tiling.streamed_bytes)
    return {
        "waves": _waves(tiling, target),
        "row_tails": math.prod(axis.trips * axis.step / axis.taken for axis in tiling.axes[:-1]),
        "column_tail": _tail(tiling),
        "traffic": 1 + (tiling.traffic - 1) * _RE_READ,
        "loop_trips": 1 + _TRIP * math.log2(tiling.trips),
        "overlap": 1 + _ALONE / (resident * tiling.axes[-1].trips),
        "in_flight": max(1.0, math.sqrt(_FLIGHT_BYTES * share / flight)),
        "idle_threads": math.hypot(1.0, _THREAD_ELEMENTS * threads / _block(tiling)),
        "registers": max(1.0, words / _TILE_REGISTERS) ** 0.125,
        "instructions": max(1.0, _instructions(tiling) * share / (_INSTRUCTIONS_A_BYTE * spec.bytes(problem))),
        "eviction": _KEPT_LINES if config.get("EVICT_FIRST") is False and spec.bytes(problem) > _L2_BYTES else 1.0,
    }


def _resident(tiling: Tiling, threads: int, words: float, target: Target) -> int:
    """Return the number of programs on one multiprocessor at a time."""
    registers = min(255.0, _OWN_REGISTERS + words)
    allowed = min(_THREADS // threads, _PROGRAMS, int(_REGISTERS / (registers * threads)))
    return max(1, min(allowed, ceil_div(tiling.programs, target.cores)))


def _waves(tiling: Tiling, target: Target) -> float:
    """Return the busiest multiprocessor's share of the work, relative to an even share."""
    even = math.prod(axis.size for axis in tiling.axes) / target.cores
    return max(1.0, ceil_div(tiling.programs, target.cores) * _block(tiling) / even)


def _instructions(tiling: Tiling) -> float:
    """Return the vector operations of all elements, those of reductions included."""
    each = tiling.operations + _REDUCTION * tiling.reductions
    return each * math.prod(axis.size for axis in tiling.axes)


def _block(tiling: Tiling) -> int:
    """Return the number of elements per program."""
    return math.prod(axis.taken for axis in tiling.axes)


def _tail(tiling: Tiling) -> float:
    axis = tiling.axes[-1]
    return axis.trips * axis.step / axis.taken
