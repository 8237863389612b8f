"""What is known of a config before it runs.

Each penalty is the factor by which one property is expected to slow the kernel down, 1 where it does no harm; the
prior's score of a config is one over their product, 1 for a config without a flaw. The factors follow from counting
(waves, tails) or from the cost of a trip beside the work in it; they need to rank configs, not to time them, since
the search corrects them by what it measures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, Tiling, ceil_div

__all__ = ["is_likely_to_fit", "penalties", "ranked", "score", "tiling_facts"]

_TRIP_BYTES = 5000
"""Ascend: what one trip of the inner loop costs beside its work, as bytes of tile that could be worked on meanwhile:
some nine vector instructions, each drained for about 40 cycles at about 14 bytes of chain a cycle."""

_SUB_TILE_BYTES = 10000
"""Ascend: the same for one trip of an outer loop: a reduction, a store, and the inner loop's pipeline filled again."""

_START_BYTES = 20000
"""Ascend: what starting a program costs, as bytes of input that could be worked on meanwhile."""

_FIRST_LOAD = 0.3
"""Ascend: what loading a byte costs beside all work on it. A program's first tile is loaded while nothing else runs."""

_NO_DOUBLE_BUFFER = 1.35
"""Transfers and vector work in turn instead of at once: a quarter to a half slower where neither dominates."""

_OVERFLOW = 4.0
"""Tiles estimated beyond on-chip memory are probably refused; grows with the overflow."""

_RE_READ = {"ascend": 1.0, "nvidia": 0.2}
"""What reading again costs beside reading first: on NVIDIA the caches keep most of what a program reads twice."""

_FLIGHT_BYTES = 32768
"""NVIDIA: bytes that one multiprocessor should have under way to keep global memory busy (about 5 TB/s over 132 of
them, times about 0.8 us of latency)."""


def penalties(spec: KernelSpec, problem: Problem, config: Config, target: Target) -> dict[str, float]:
    """The penalties by name, each 1 or more; none where the spec does not say how configs cut the work up."""
    tiling = spec.tiling(config, problem)
    if not tiling.axes:
        return {}
    shared = {
        "waves": _waves(tiling, target),
        "row_tails": _row_tails(tiling),
        "column_tail": _column_tail(tiling),
        "traffic": 1 + (tiling.traffic - 1) * _RE_READ[target.family],
    }
    family = (
        _ascend(tiling, problem, config, target)
        if target.family == "ascend"
        else _nvidia(tiling, problem, config, target)
    )
    return shared | family


def score(factors: Mapping[str, float]) -> float:
    """From 0 to 1; 1 is a config without a flaw."""
    return 1 / math.prod(factors.values())


def is_likely_to_fit(factors: Mapping[str, float]) -> bool:
    """Whether the config's tiles are expected to fit on chip."""
    return factors.get("on_chip", 1.0) < _OVERFLOW


def ranked(spec: KernelSpec, problem: Problem, configs: Iterable[Config], target: Target) -> list[Config]:
    """The configs in the order the prior likes them, those that it thinks too large last."""

    def order(config: Config) -> tuple[bool, float]:
        factors = penalties(spec, problem, config, target)
        return not is_likely_to_fit(factors), -score(factors)

    return sorted(configs, key=order)


def tiling_facts(tiling: Tiling, target: Target) -> dict[str, Any]:
    """How the config cuts the work up, as `explain` and the stored evidence show it."""
    return {
        "programs": tiling.programs,
        "cores": target.cores,
        "waves": ceil_div(tiling.programs, target.cores),
        "tail_rows": sum(axis.tail for axis in tiling.axes[: max(1, len(tiling.axes) - 1)]),
        "trips": tiling.trips,
    }


def _waves(tiling: Tiling, target: Target) -> float:
    """The busiest core's share of the work against an even share: idle cores and a half-empty last wave."""
    block = math.prod(min(axis.block, axis.size) for axis in tiling.axes)
    even = math.prod(axis.size for axis in tiling.axes) / target.cores
    return max(1.0, ceil_div(tiling.programs, target.cores) * block / even)


def _row_tails(tiling: Tiling) -> float:
    """Rows computed against rows needed by a full program."""
    return math.prod(axis.trips * axis.step / min(axis.block, axis.size) for axis in tiling.axes[:-1])


def _column_tail(tiling: Tiling) -> float:
    axis = tiling.axes[-1]
    return axis.trips * axis.step / min(axis.block, axis.size)


def _ascend(tiling: Tiling, problem: Problem, config: Config, target: Target) -> dict[str, float]:
    elements = math.prod(axis.step for axis in tiling.axes)
    tile = elements * 4  # vector work is in float32
    inner = tiling.axes[-1].trips
    waves = ceil_div(tiling.programs, target.cores)
    share = math.prod(axis.size for axis in tiling.axes) * problem.item_bytes / target.cores
    return {
        "loop_trips": 1 + _TRIP_BYTES / tile,
        "sub_tiles": 1 + _SUB_TILE_BYTES / (tile * inner),
        "transfer": 1 + 64 / (tiling.axes[-1].step * problem.item_bytes),
        "starts": 1 + waves * _START_BYTES / share,
        "fill": 1 + _FIRST_LOAD * waves * elements * problem.item_bytes / share,
        "on_chip": _on_chip(tiling, config, target),
    }


def _on_chip(tiling: Tiling, config: Config, target: Target) -> float:
    """Double-buffered if that fits; else single, if that fits; else probably refused."""
    single = tiling.streamed_bytes + tiling.resident_bytes
    double = single + tiling.streamed_bytes
    if single > target.on_chip_bytes:
        return _OVERFLOW * single / target.on_chip_bytes
    return 1.0 if config.get("multibuffer", True) and double <= target.on_chip_bytes else _NO_DOUBLE_BUFFER


def _nvidia(tiling: Tiling, problem: Problem, config: Config, target: Target) -> dict[str, float]:
    threads = 32 * int(config.get("num_warps", 4))
    tile = math.prod(axis.step for axis in tiling.axes)
    resident = max(1, min(2048 // threads, 32, ceil_div(tiling.programs, target.cores)))
    flight = max(1, resident * tiling.streamed_bytes)
    elements = tile / threads
    return {
        "loop_trips": 1 + 0.02 * math.log2(tiling.trips),
        "transfer": 1 + 32 / (tiling.axes[-1].step * problem.item_bytes),
        "in_flight": max(1.0, (_FLIGHT_BYTES / flight) ** 0.7),
        "registers": max(1.0, elements / 48),
    }
