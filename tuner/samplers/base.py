"""Samplers over an enumerated space, under Optuna's ask and tell.

Optuna neither removes duplicates nor enforces constraints. Each sampler here therefore chooses among the config indices
of a `Space` that were not tried yet, so its suggestions are always valid and always new.
"""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tilewise.tuner.space.search_space import Space

__all__ = [
    "FAILED",
    "PENALTY",
    "ExhaustiveSampler",
    "History",
    "NearestSampler",
    "RandomSampler",
    "TableSampler",
    "TpeSampler",
    "distributions",
    "quiet_study",
]

FAILED = "failed"
"""User attribute of a trial that has no time; such a trial has the value `PENALTY`."""

PENALTY = 50.0
"""The value told for a failed config: larger than the logarithm of any time in microseconds, and finite,
because Optuna's own samplers do not see trials that are told as failed."""


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the space as Optuna sees it: value indices, as integers for ordered parameters, else as categories."""
    return {
        name: IntDistribution(0, len(values) - 1)
        if space.is_ordered(name)
        else CategoricalDistribution(list(range(len(values))))
        for name, values in space.domains.items()
    }


@dataclass(slots=True)
class History:
    """The results so far, by config index: the logarithm of the time, or None for a config that failed or whose value
    is not finite. `pending` configs were suggested but not told."""

    told: dict[int, float | None] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)

    def values(self) -> dict[int, float]:
        return {index: value for index, value in self.told.items() if value is not None}


class TableSampler(BaseSampler):
    """A sampler of config indices; a subclass chooses which.

    `study.ask` raises `LookupError` after every config was suggested.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.history = History()
        self.free = np.ones(len(space), dtype=bool)
        self._distributions = distributions(space)
        self._loaded = False
        self._chosen = 0

    @abstractmethod
    def choose(self, study: Study, trial: FrozenTrial) -> int:
        """Return the index of a config that is `self.free`: neither told nor pending."""

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Choose the config here, because Optuna does not ask for parameters that have only one value."""
        self.load(study)
        if len(self.history.told) + len(self.history.pending) >= len(self.space):
            raise LookupError("every config of the space was tried")
        self._chosen = self.choose(study, trial)
        assert self.free[self._chosen], "a config is suggested once"
        self.free[self._chosen] = False
        self.history.pending.add(self._chosen)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return dict(zip(self.space.domains, self.space.value_indices[self._chosen].tolist(), strict=True))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise ValueError(f"{param_name} is not a parameter of this space")

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._note(trial, values[0] if values else None)

    def load(self, study: Study) -> None:
        """Note the trials that the study held before this sampler's first suggestion: told ones, and those that it was
        only asked for."""
        if not self._loaded:
            self._loaded = True
            for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
                self._note(trial, trial.value)
            for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                if trial.params:  # without them, it is the one that is being asked for
                    index = self._index(trial)
                    self.free[index] = False
                    self.history.pending.add(index)

    def told(self, study: Study) -> int:
        """Return the number of trials that were told."""
        self.load(study)
        return len(self.history.told)

    def _note(self, trial: FrozenTrial, value: float | None) -> None:
        index = self._index(trial)
        self.free[index] = False
        self.history.pending.discard(index)
        usable = value is not None and math.isfinite(value) and not trial.user_attrs.get(FAILED)
        self.history.told[index] = value if usable else None

    def _index(self, trial: FrozenTrial) -> int:
        index = self.space.index_of([trial.params[name] for name in self.space.domains])
        assert index is not None, "only configs of the space are suggested or added"
        return index


class ExhaustiveSampler(TableSampler):
    """A sampler of every config, in the order of the space."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space)
        self._next = 0

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        while not self.free[self._next]:
            self._next += 1
        return self._next


class RandomSampler(TableSampler):
    """A sampler of every config, in a random order."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space)
        self._order = list(range(len(space)))
        random.Random(seed).shuffle(self._order)

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        while not self.free[self._order[-1]]:
            self._order.pop()
        return self._order[-1]


class NearestSampler(TableSampler):
    """A sampler that knows nothing of constraints; each suggestion is moved to the nearest valid config not tried."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space)
        self._random = random.Random(seed)
        self._ordered = np.array([space.is_ordered(name) for name in space.domains], dtype=bool)
        self._scales = np.array([max(1, len(values) - 1) for values in space.domains.values()])

    @abstractmethod
    def suggest(self, study: Study, trial: FrozenTrial) -> Mapping[str, Any]:
        """Return the value index wanted of each parameter; of all, or of none for a random config."""

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        new = np.flatnonzero(self.free)
        suggested = self.suggest(study, trial)
        if not suggested:
            return int(self._random.choice(new))
        wanted = np.array([suggested[name] for name in self.space.domains])
        away = np.abs(self.space.value_indices[new] - wanted)
        distance = np.where(self._ordered, away / self._scales, away > 0).sum(axis=1)
        return int(new[np.argmin(distance)])


class TpeSampler(NearestSampler):
    """Optuna's TPE, which starts at random."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._tpe = TPESampler(seed=seed)

    def suggest(self, study: Study, trial: FrozenTrial) -> Mapping[str, Any]:
        return self._tpe.sample_relative(study, trial, self._distributions)


def quiet_study(sampler: BaseSampler) -> Study:
    """Create a study in memory that minimises. Optuna's own log is off, because the tuning reports trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=sampler)
