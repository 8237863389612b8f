"""BoTorch's default Gaussian process with the logarithm of expected improvement, as a search to compare with.

`SingleTaskGP` as BoTorch ships it, on values' ranks scaled to [0, 1] (categories as indicators), fitted anew after each
batch. The next config has the largest `LogExpectedImprovement` of all that were not tried, or `qLogExpectedImprovement`
where others are under way. A failed config counts as slow as the slowest that ran. The first ten configs are random.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial

from tilewise.tuner.samplers.base import TableSampler
from tilewise.tuner.space.search_space import Space

__all__ = ["BotorchSampler"]

_FIRST = 10
_MOST = 5_000  # candidates a suggestion; of larger spaces a random part is judged


class BotorchSampler(TableSampler):
    """A sampler that follows BoTorch."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space)
        self._seed, self._random = seed, np.random.default_rng(seed)
        self._features = _features(space)
        self._model: Any = None
        self._fitted = 0

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        new = np.flatnonzero(self.free)
        known = self.history.values()
        if len(self.history.told) < _FIRST or len(set(known.values())) < 2:
            return int(self._random.choice(new))
        if len(new) > _MOST:
            new = self._random.choice(new, _MOST, replace=False)
        return int(new[np.argmax(self._improvement(new))])

    def _improvement(self, candidates: NDArray[np.int_]) -> NDArray[np.float64]:
        """Return the logarithm of the improvement that each candidate promises beside those under way."""
        import torch
        from botorch.acquisition.analytic import LogExpectedImprovement
        from botorch.acquisition.logei import qLogExpectedImprovement
        from botorch.sampling.normal import SobolQMCNormalSampler

        torch.set_num_threads(1)
        torch.manual_seed(self._seed)
        gains = self._fit()
        if pending := sorted(self.history.pending):
            sampler = SobolQMCNormalSampler(torch.Size([128]), seed=self._seed)
            under_way = torch.from_numpy(self._features[pending])
            rule = qLogExpectedImprovement(self._model, gains.max(), sampler, X_pending=under_way)
        else:
            rule = LogExpectedImprovement(self._model, gains.max())
        points = torch.from_numpy(self._features[candidates]).unsqueeze(1)
        with torch.no_grad():
            return np.asarray(rule(points))

    def _fit(self) -> Any:
        """Fit the model if results have come since it was fitted; return the negative log times, as a column."""
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        told = self.history.told
        slowest = max(self.history.values().values())
        gains = torch.tensor([[-(slowest if value is None else value)] for value in told.values()], dtype=torch.float64)
        if len(told) != self._fitted:
            self._model = SingleTaskGP(torch.from_numpy(self._features[list(told)]), gains)
            fit_gpytorch_mll(ExactMarginalLogLikelihood(self._model.likelihood, self._model))
            self._fitted = len(told)
        return gains


def _features(space: Space) -> NDArray[np.float64]:
    """Return a row of numbers from 0 to 1 for each config."""
    columns: list[NDArray[np.float64]] = []
    for (name, values), indices in zip(space.domains.items(), space.value_indices.T, strict=True):
        if space.is_ordered(name):
            columns.append(indices[:, None] / max(1, len(values) - 1))
        elif len(values) > 1:
            columns.append((indices[:, None] == np.arange(len(values))).astype(float))
    return np.concatenate(columns, axis=1)
