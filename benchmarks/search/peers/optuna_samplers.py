"""Optuna's Gaussian process and CMA-ES, as searches to compare with.

Optuna's samplers know nothing of constraints, and take no config twice for a fault. So each runs in a study of its own:
its suggestion is moved to the nearest valid config that was not tried, and the study learns that config's time in the
suggestion's place. A failed config counts as slow as the slowest that ran.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tilewise.tuner.samplers.base import NearestSampler, quiet_study
from tilewise.tuner.space.search_space import Space

__all__ = ["OptunaSampler", "cma_es", "gaussian_process"]


class OptunaSampler(NearestSampler):
    """One of Optuna's own samplers, `inner`."""

    def __init__(self, space: Space, inner: BaseSampler, seed: int) -> None:
        super().__init__(space, seed)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        self._inner = quiet_study(inner)
        self._asked: dict[int, Trial] = {}

    def suggest(self, study: Study, trial: FrozenTrial) -> Mapping[str, Any]:
        self._asked[trial.number] = asked = self._inner.ask(fixed_distributions=self._distributions)
        return asked.params

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        super().after_trial(study, trial, state, values)
        asked = self._asked.pop(trial.number)
        self._inner.tell(asked, state=TrialState.FAIL)
        times = self.history.values()
        if not times:
            return  # nothing ran yet, so that a failure has no time to be as slow as
        index = self.space.index_of([trial.params[name] for name in self.space.domains])
        assert index is not None, "only configs of the space are suggested"
        tried = create_trial(
            value=times.get(index, max(times.values())),
            params=dict(zip(self.space.domains, self.space.value_indices[index].tolist(), strict=True)),
            distributions=self._distributions,
            system_attrs=self._inner.get_trials(deepcopy=False)[asked.number].system_attrs,  # CMA-ES's generation
        )
        self._inner.add_trial(tried)


def gaussian_process(space: Space, seed: int = 0) -> OptunaSampler:
    """Return Optuna's Gaussian process at its defaults."""
    return OptunaSampler(space, GPSampler(seed=seed), seed)


def cma_es(space: Space, seed: int = 0) -> OptunaSampler:
    """Return Optuna's CMA-ES at its defaults; categories are random in it."""
    return OptunaSampler(space, CmaEsSampler(seed=seed, warn_independent_sampling=False), seed)
