"""What a model of the device foresees: which configs to try first, and afterwards how right it was.

A real Ascend chip has a model of its part. Compiling for that needs no chip, so the configs that the prior likes best
are ranked by their modelled times before any is measured, the first few are confirmed on the chip, and at the end the
order of all that was measured is held against the model's.
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
"""`Device.predict_us` for one problem: modelled microseconds of each config, or None where there is no model."""

RANKED = 64
"""How many configs, those of the best prior, are compiled for the model before the first is measured."""

CONFIRMED = 8
"""How many of these, the fastest modelled, are measured first."""

MODELLED = "modelled_us"
"""The fact of a trial on a real device that holds what the model foresaw."""

_FEWEST = 4
"""Pairs of times below which an order says nothing."""


def rank_by_model(predict: Predict, space: Space, log_penalties: NDArray[np.float64] | None) -> dict[int, float]:
    """Modelled times in microseconds of the configs that the prior likes best, by config index, the fastest first;
    empty where the device has no model of itself, or there is no prior."""
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
    """How a model's order of configs compares with the measured one: rank correlations (1: the same order, 0: no
    relation), and how much longer than the best the config takes that the model would have picked."""

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
    """Of the trials that were both modelled and measured; None where they are too few or all alike."""
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
    """Tau-b: concordant less discordant pairs, over those without ties."""
    signs = [np.sign(side[:, None] - side[None, :]) for side in (a, b)]
    untied = math.prod(float((sign != 0).sum()) for sign in signs)
    return float((signs[0] * signs[1]).sum() / math.sqrt(untied))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """From 1; equal values share the mean of their ranks."""
    below = (values[None, :] < values[:, None]).sum(axis=1)
    equal = (values[None, :] == values[:, None]).sum(axis=1)
    ranks: NDArray[np.float64] = below + (equal + 1) / 2
    return ranks
