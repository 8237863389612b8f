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
from tilewise.tuner.prior.ascend import OVERFLOW, ascend_penalties
from tilewise.tuner.prior.nvidia import nvidia_penalties

__all__ = ["is_likely_to_fit", "penalties", "rank_by_prior", "score", "tiling_facts"]


def penalties(spec: KernelSpec, problem: Problem, config: Config, target: Target) -> dict[str, float]:
    """The penalties by name, each 1 or more; none where the spec does not say how configs cut the work up."""
    tiling = spec.tiling(config, problem)
    if not tiling.axes:
        return {}
    if target.family == "ascend":
        return ascend_penalties(spec, problem, config, tiling, target)
    return nvidia_penalties(spec, problem, config, tiling, target)


def score(factors: Mapping[str, float]) -> float:
    """From 0 to 1; 1 is a config without a flaw."""
    return 1 / math.prod(factors.values())


def is_likely_to_fit(factors: Mapping[str, float]) -> bool:
    """Whether the config's tiles are expected to fit on chip."""
    return factors.get("on_chip", 1.0) < OVERFLOW


def rank_by_prior(spec: KernelSpec, problem: Problem, configs: Iterable[Config], target: Target) -> list[Config]:
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
