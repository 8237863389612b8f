"""The prior: penalties that predict a config's cost before it runs.

Each penalty is the factor by which one property is expected to slow the kernel down, 1 where it does no harm. The
score of a config is one over their product, 1 for a config without a flaw. The factors follow from counts (waves,
tails) or from the cost of a trip relative to the work in it. They need to rank configs, not to time them: the search
corrects them by its measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, Tiling, ceil_div
from tilewise.tuner.prior.ascend import ascend_penalties
from tilewise.tuner.prior.effects import OVERFLOW
from tilewise.tuner.prior.nvidia import nvidia_penalties

__all__ = ["is_likely_to_fit", "penalties", "rank_by_prior", "score", "tiling_facts"]


PENALTIES = {"ascend": ascend_penalties, "nvidia": nvidia_penalties}
"""The penalties of each device family. A family without penalties is searched without a prior."""


def penalties(spec: KernelSpec, problem: Problem, config: Config, target: Target) -> dict[str, float]:
    """Return the penalties by name, each 1 or more; none if the spec does not say how configs divide the work."""
    tiling = spec.tiling(config, problem)
    if not tiling.axes:
        return {}
    family = PENALTIES.get(target.family)
    return family(spec, problem, config, tiling, target) if family else {}


def score(factors: Mapping[str, float]) -> float:
    """Return a score from 0 to 1; 1 is a config without a flaw."""
    return 1 / math.prod(factors.values())


def is_likely_to_fit(factors: Mapping[str, float]) -> bool:
    """Return whether the config's tiles are expected to fit on chip."""
    return factors.get("on_chip", 1.0) < OVERFLOW


def rank_by_prior(spec: KernelSpec, problem: Problem, configs: Iterable[Config], target: Target) -> list[Config]:
    """Sort configs by score, the best first; those that are not expected to fit on chip come last."""

    def order(config: Config) -> tuple[bool, float]:
        factors = penalties(spec, problem, config, target)
        return not is_likely_to_fit(factors), -score(factors)

    return sorted(configs, key=order)


def tiling_facts(tiling: Tiling, target: Target) -> dict[str, Any]:
    """Return how the config divides the work, as `explain` and the stored evidence show it."""
    cores = target.matrix_cores if tiling.dot else target.cores
    return {
        "programs": tiling.programs,
        "cores": cores,
        "waves": ceil_div(tiling.programs, cores),
        "tail_rows": sum(axis.tail for axis in tiling.axes[: max(1, len(tiling.axes) - 1)]),
        "trips": tiling.trips,
    }
