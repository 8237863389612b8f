"""Ranking of configs by a model of the device, and the model's agreement with the measured times afterwards.

A real Ascend chip has a model of its part, and compiling for the model needs no chip. So the prior's best configs are
ranked by their modelled times before any is measured, and the first few are confirmed on the chip. At the end, the
order of all measured configs is compared with the model's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.db.records import Status, Trial
from tilewise.kernels.spec import Config
from tilewise.tuner.space.search_space import Space

__all__ = ["CONFIRMED", "MODELLED", "RANKED", "Agreement", "Predict", "agreement", "rank_by_model"]

Predict = Callable[[Sequence[Config]], Sequence[float | None] | None]
"""`Device.predict_us` for one problem: modelled microseconds of each config, or None without a model."""

RANKED = 64
"""Number of configs, the prior's best, that are compiled for the model before the first is measured."""

CONFIRMED = 8
"""Number of these that are measured first: the fastest by the model."""

MODELLED = "modelled_us"
"""The fact of a trial on a real device that holds the modelled time."""

_FEWEST = 4
"""Number of pairs of times below which an order says nothing."""


def rank_by_model(predict: Predict, space: Space, log_penalties: NDArray[np.float64] | None) -> dict[int, float]:
    """Return the modelled microseconds of the prior's best configs by config index, the fastest first; empty without a
    model of the device or without a prior."""
    if log_penalties is None:
        return {}
    indices = np.argsort(log_penalties.sum(axis=1), kind="stable")[:RANKED].tolist()
    times = predict([space.configs[index] for index in indices])
    if times is None:
        return {}
    found = {index: time for index, time in zip(indices, times, strict=True) if time is not None}
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a model's order of configs with the measured one.

    `kendall` and `spearman` are rank correlations (1: the same order, 0: no relation). `cost_of_pick` is the measured
    time of the model's fastest config, divided by the best.
    """

    configs: int
    kendall: float
    spearman: float
    cost_of_pick: float

    def to_json(self) -> dict[str, Any]:
        correlations = {"kendall": round(self.kendall, 4), "spearman": round(self.spearman, 4)}
        return {"configs": self.configs, **correlations, "cost_of_pick": round(self.cost_of_pick, 4)}

    def text(self) -> str:
        return (
            f"The model's order of {self.configs} configs against the measured one: Kendall {self.kendall:.2f}, "
            f"Spearman {self.spearman:.2f}; its pick takes {self.cost_of_pick:.2f}x the best."
        )


def agreement(trials: Iterable[Trial]) -> Agreement | None:
    """Compare the trials that were both modelled and measured; None if they are too few or all alike."""
    pairs = [
        (float(trial.facts[MODELLED]), trial.time_us)
        for trial in trials
        if trial.status is Status.CORRECT and trial.time_us and MODELLED in trial.facts
    ]
    modelled, measured = (np.array(side) for side in zip(*pairs, strict=True)) if pairs else (np.empty(0), np.empty(0))
    if len(pairs) < _FEWEST or np.ptp(modelled) == 0 or np.ptp(measured) == 0:
        return None
    return Agreement(
        configs=len(pairs),
        kendall=_kendall(modelled, measured),
        spearman=float(np.corrcoef(_ranks(modelled), _ranks(measured))[0, 1]),
        cost_of_pick=float(measured[np.argmin(modelled)] / measured.min()),
    )


def _kendall(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return tau-b: concordant minus discordant pairs, over those without ties."""
    signs = [np.sign(side[:, None] - side[None, :]) for side in (a, b)]
    untied = math.prod(float((sign != 0).sum()) for sign in signs)
    return float((signs[0] * signs[1]).sum() / math.sqrt(untied))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks from 1; equal values share the mean of their ranks."""
    below = (values[None, :] < values[:, None]).sum(axis=1)
    equal = (values[None, :] == values[:, None]).sum(axis=1)
    ranks: NDArray[np.float64] = below + (equal + 1) / 2
    return ranks
