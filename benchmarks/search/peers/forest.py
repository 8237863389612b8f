"""The reference search published with the recorded landscapes: a random forest predicts the best tenth of configs.

It is the likelihood-free Bayesian optimisation of Song et al., 2022, with a random forest as classifier: 20 random
configs, then batches of the 10 that the forest considers likeliest to be among the best tenth.
"""

from __future__ import annotations

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial

from tilewise.tuner.samplers.base import TableSampler
from tilewise.tuner.space.search_space import Space

__all__ = ["ForestSampler"]

_FIRST, _BATCH, _TREES, _SHARE = 20, 10, 100, 0.1


class ForestSampler(TableSampler):
    """A sampler that follows a random forest."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space)
        self._seed, self._random = seed, np.random.default_rng(seed)
        self._queue: list[int] = []

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        new = np.flatnonzero(self.free)
        if len(self.history.told) < _FIRST:
            return int(self._random.choice(new))
        while self._queue and not self.free[self._queue[0]]:
            self._queue.pop(0)
        if not self._queue:
            likely = self._chance(new) + 1e-6 * self._random.random(len(new))
            self._queue = new[np.argsort(-likely)[:_BATCH]].tolist()
        return self._queue.pop(0)

    def _chance(self, new: np.typing.NDArray[np.int_]) -> np.typing.NDArray[np.float64]:
        from sklearn.ensemble import RandomForestClassifier

        told = list(self.history.told)
        values = np.array([np.inf if v is None else v for v in self.history.told.values()])
        good = values <= np.quantile(values, _SHARE, method="higher")
        if good.all():
            return np.zeros(len(new))
        forest = RandomForestClassifier(_TREES, random_state=self._seed).fit(self.space.value_indices[told], good)
        return np.asarray(forest.predict_proba(self.space.value_indices[new])[:, 1])
