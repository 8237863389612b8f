"""SMAC's random forest with expected improvement, as a search to compare with.

`HyperparameterOptimizationFacade` as SMAC ships it, asked and told. It knows no constraints: each suggestion is moved
to the nearest valid config that was not tried, and SMAC is told that config's time. A failed config counts as slow as
the slowest that ran. In a small space SMAC runs out of suggestions before all valid configs were tried; the rest are
random.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tilewise.tuner.samplers.base import NearestSampler
from tilewise.tuner.space.search_space import Space

__all__ = ["SmacSampler"]

_TRIALS = 100
"""Scenario's own default; the initial design is a quarter of it at most."""


class SmacSampler(NearestSampler):
    """A sampler that follows SMAC."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        from ConfigSpace import Categorical, ConfigurationSpace, Constant, Integer
        from smac import HyperparameterOptimizationFacade, Scenario

        super().__init__(space, seed)
        self._space = ConfigurationSpace(seed=seed)
        for name, values in space.domains.items():
            if len(values) == 1:
                self._space.add(Constant(name, 0))
            elif space.is_ordered(name):
                self._space.add(Integer(name, (0, len(values) - 1)))
            else:
                self._space.add(Categorical(name, list(range(len(values)))))
        self._folder = tempfile.TemporaryDirectory()  # SMAC writes its history
        scenario = Scenario(
            self._space,
            output_directory=Path(self._folder.name),
            deterministic=True,
            n_trials=_TRIALS,
            seed=seed,
        )
        self._smac = HyperparameterOptimizationFacade(scenario, _unused, logging_level=False, overwrite=True)
        self._seeds: dict[int, int | None] = {}

    def suggest(self, study: Study, trial: FrozenTrial) -> Mapping[str, Any]:
        from smac.main.exceptions import ConfigurationSpaceExhaustedException

        try:
            asked = self._smac.ask()
        except (ConfigurationSpaceExhaustedException, StopIteration):  # the first time, and from then on
            return {}
        self._seeds[trial.number] = asked.seed
        return dict(asked.config)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        from ConfigSpace import Configuration
        from smac.runhistory.dataclasses import TrialInfo, TrialValue

        super().after_trial(study, trial, state, values)
        times = self.history.values()
        if not times or trial.number not in self._seeds:
            return
        index = self.space.index_of([trial.params[name] for name in self.space.domains])
        assert index is not None, "only configs of the space are suggested"
        indices = dict(zip(self.space.domains, self.space.value_indices[index].tolist(), strict=True))
        info = TrialInfo(Configuration(self._space, values=indices), seed=self._seeds.pop(trial.number))
        self._smac.tell(info, TrialValue(cost=times.get(index, max(times.values()))), save=False)


def _unused(config: Any, seed: int = 0) -> float:
    raise AssertionError("SMAC is told times; it runs nothing")
