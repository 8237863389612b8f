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
from tilewise.tuner.ascend_prior import OVERFLOW, ascend_penalties

__all__ = ["is_likely_to_fit", "penalties", "ranked", "score", "tiling_facts"]

_RE_READ = 0.2
"""NVIDIA: what reading again costs beside reading first, since the caches keep most of what a program reads twice."""

_FLIGHT_BYTES = 32768
"""NVIDIA: bytes that one multiprocessor should have under way to keep global memory busy (about 5 TB/s over 132 of
them, times about 0.8 us of latency)."""


def penalties(spec: KernelSpec, problem: Problem, config: Config, target: Target) -> dict[str, float]:
    """The penalties by name, each 1 or more; none where the spec does not say how configs cut the work up."""
    tiling = spec.tiling(config, problem)
    if not tiling.axes:
        return {}
    if target.family == "ascend":
        return ascend_penalties(spec, problem, config, tiling, target)
    return _nvidia(tiling, problem, config, target)


def score(factors: Mapping[str, float]) -> float:
    """From 0 to 1; 1 is a config without a flaw."""
    return 1 / math.prod(factors.values())


def is_likely_to_fit(factors: Mapping[str, float]) -> bool:
    """Whether the config's tiles are expected to fit on chip."""
    return factors.get("on_chip", 1.0) < OVERFLOW


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


def _nvidia(tiling: Tiling, problem: Problem, config: Config, target: Target) -> dict[str, float]:
    threads = 32 * int(config.get("num_warps", 4))
    tile = math.prod(axis.step for axis in tiling.axes)
    resident = max(1, min(2048 // threads, 32, ceil_div(tiling.programs, target.cores)))
    flight = max(1, resident * tiling.streamed_bytes)
    elements = tile / threads
    return {
        "waves": _waves(tiling, target),
        "row_tails": _row_tails(tiling),
        "column_tail": _column_tail(tiling),
        "traffic": 1 + (tiling.traffic - 1) * _RE_READ,
        "loop_trips": 1 + 0.02 * math.log2(tiling.trips),
        "transfer": 1 + 32 / (tiling.axes[-1].step * problem.item_bytes),
        "in_flight": max(1.0, (_FLIGHT_BYTES / flight) ** 0.7),
        "registers": max(1.0, elements / 48),
    }
