"""The guided sampler: Gaussian processes that learn from every trial, with and without prior knowledge.

Each *expert* predicts the mean of the log time and learns the error with a `GaussianProcess`. The first expert predicts
the same time for all configs. With a prior, a second expert predicts the prior's log penalties times a weight learnt
from the trials: 2 if the prior understates differences, negative if it inverts them. If the kernel was tuned for other
shapes, a third expert gives each penalty the weight that it had there. Without a prior, the second expert also predicts
one time for all, but neighbouring values have less in common for it: one may divide a dimension while the next leaves a
tail, which a prior would have predicted. Each expert is weighted by its marginal likelihood: a right prior is followed
from the first evaluation, and a wrong one is outvoted after a few.

The next config has the largest expected improvement under the mixture of experts. Suggested configs that are not told
yet are assumed to turn out as predicted (Ginsbourger's believer), so that a batch is spread out. Without a prior, a
failed config counts as slow as the slowest that ran, so the search leaves regions that fail as it leaves slow ones.
With a prior, which may know the times well, a failure says nothing about time. Another surrogate learns where configs
fail, and the expected improvement is multiplied by the probability of running.

"Chosen by hand" below means: while searches were replayed on the six spaces of other projects (docs/search.md) and on
the design landscapes (landscapes/README.md), and never ablated, so nobody knows how much the value matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial

from tilewise.tuner.samplers.base import TableSampler
from tilewise.tuner.samplers.gaussian_process import Array, Column, GaussianProcess, Posterior, columns
from tilewise.tuner.space.search_space import Space

__all__ = ["BETTER", "LEAST", "NEGLIGIBLE", "PATIENCE", "GuidedSampler", "Outlook"]

Indices = NDArray[np.int_]

_FIRST = "pwppwspp"
"""The first evaluations: p is the best predicted config, w a winner from elsewhere (each replaces the other if there is
none), s a config far from all before among the `_GOOD` share that is predicted best, f one far from all before; at a
dot the surrogate chooses. Without a prior, all but winners are random configs, each from its own of `_eighths`. Without
any s, the search would follow a prior that points the wrong way until its corner of the space is exhausted, and winners
from elsewhere would anchor it. Chosen by hand among some thirty such words, with the design landscapes of an H200 in
sight (landscapes/README.md)."""

_FIRST_UNAIDED = "rrrr..r."
"""The same with neither a prior nor winners, and r for random. Until the surrogate chooses, it is at no count behind
random search, apart from chance; the r among its first choices is for landscapes on which they are poor. Chosen among
three such words: two on 33 of 64 landscapes, all on seven of them (docs/search.md).
"""

_GOOD, _LEAST_GOOD = 0.05, 50
"""The share, and the least number of configs. Chosen by hand, as above."""

_FIRST_OF_NEXT = "PpPwPPfp"
"""The same if the prior's weights were learnt on other shapes: P is the best by the plain prior, p the best by these
weights. Chosen by hand, after `layer_norm-1500x2048` had taken 9 evaluations with neighbours, and the last four of it,
which were two choices of the surrogate, f and w, on 37 landscapes of an H200 and 12 modelled ones, after
`row_reduce-1000x8192` had taken 13 evaluations at the median and 65 at the 95th percentile (docs/search.md)."""

_FAR_AMONG = 300
"""Number of random configs from which the one farthest from all before is taken, with a prior. It lies in a corner of
the space, where configs are slow: without a prior that it can correct, eight such were behind random search on some of
23 landscapes of 13 kernels. Chosen by hand."""

_POOL = 4000
"""Larger spaces are searched in a pool: this many random configs, drawn anew for each batch, all configs that differ
from one of the `_NEAR` best in one parameter, and the `_PREDICTED` best by the prior. All three were chosen by hand,
for the time of a suggestion (search-overhead.json)."""

_NEAR, _PREDICTED = 5, 500
"""See `_POOL`; chosen by hand."""

_GROWTH = 1.1
"""A surrogate is fitted again when there are a tenth more trials. Chosen by hand, for the time of a suggestion."""

_EVIDENCE = 400
"""Limit on a surrogate's trials: half of them are the best, the others are evenly spread over the run. Chosen by hand,
for the time of a suggestion."""

_LEAST_FOR_FIT = 4
"""Fewest trials that a surrogate is fitted to. Chosen by hand."""

_RANDOM_SHARE = 0.05
"""Share of random evaluations with a prior, which can anchor a search. Without one, the posterior variance explores.
Chosen by hand."""

_UNLIKELY_FEASIBLE = math.log(0.1 / 0.95)
"""Added to the predicted log merit of a config that the prior expects not to fit on chip. Chosen by hand."""

_TWINS, _TWINS_OF_NEXT, _REACH = 0.25, 0.1, 0.4
"""In the opening, a predicted config near one already taken is penalised by this much log time (`_TWINS_OF_NEXT` if the
prior's weights were learnt), which fades with a reach in units of a parameter's whole range. Chosen by hand, the first
among 0.2, 0.25 and 0.3 with all landscapes of an H200 and of clock-7 in sight (docs/search.md)."""

_ROUNDING = 1e-9
"""Difference of log times and of distances, which are of the order of 1, below which two are alike. Chosen by hand."""

_DECISIVE = 4
"""Experts are weighted by the evidence of this many average trials, however many there are. The trials of a search lie
near one another, so each adds little new evidence; the full marginal likelihood was tried and silenced an expert for
good after a dozen. Chosen by hand."""

_PULL = 4.0
"""The prior's weight is held at 1 as strongly as by this many trials. Chosen by hand."""

_LEAST_CHANCE = 0.02
"""The least probability of running that a config is given: the surrogate of failures may be wrong. Chosen by hand."""

_DRAWS, _DRAWN_CONFIGS = 256, 256
"""Joint draws for the outlook, and the most promising configs that are drawn. Chosen by hand, for the time that it
takes."""

_WIDTH, _FREEDOM = 0.6, 3
"""Width and degrees of freedom of the Student-t process from which the outlook is drawn, relative to the Gaussian
process. The latter overestimates large chances of a better config and underestimates small ones. Both were chosen on
the design landscapes. Even so the chances are poorly calibrated, so they end a search only together with `PATIENCE`."""

BETTER = 0.005
"""Share of the best time by which a better config must be faster. Chosen by hand: the smallest gain that a race
tells."""


LEAST, NEGLIGIBLE, PATIENCE = 20, 0.005, 3
"""A search is over after at least `LEAST` trials if the chance of a better config times its gain is less than the share
`NEGLIGIBLE` of the best time, and if it has made `PATIENCE` times as many trials as it took to find the best. The
outlook alone is sometimes too sure while a search still improves. All three were chosen on all landscapes that existed
then, judged ones too; search-endings-h200.json and search-endings-modelled.json hold how far from the best tunings
end."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """An estimate of the gain from further search, after `trials` trials.

    `found` counts the trials up to the first that no later one was better than. `chance` is that of a config more than
    half a percent faster than the best, and `gain` the median of how much faster it would be, as a share of the best
    time.
    """

    chance: float
    gain: float
    trials: int
    found: int

    @property
    def expected(self) -> float:
        return self.chance * self.gain

    @property
    def is_over(self) -> bool:
        return self.trials >= max(LEAST, PATIENCE * self.found) and self.expected < NEGLIGIBLE


class GuidedSampler(TableSampler):
    """The sampler of the `guided` search.

    `log_penalties` has one row per config and one column per penalty: natural logarithms, 0 for no penalty. Without a
    prior (None) the search learns from the trials alone. `likely` marks the configs that the prior expects to fit on
    chip. `known` are config indices to begin with, in that order. `elsewhere` are those of winners for another shape,
    dtype or device, the best guess first: they get a share of the first evaluations. `weights`, one per penalty, were
    learnt there.
    The same trials and the same seed give the same suggestions, whether the trials were made or added.
    """

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        *,
        log_penalties: Array | None = None,
        likely: NDArray[np.bool_] | None = None,
        known: Sequence[int] = (),
        elsewhere: Sequence[int] = (),
        weights: Array | None = None,
    ) -> None:
        super().__init__(space)
        self._seed, self._known, self._elsewhere = seed, list(dict.fromkeys(known)), list(elsewhere)
        self._value_indices = space.value_indices
        self._unit = space.value_indices / np.maximum(space.value_indices.max(axis=0, initial=0), 1).astype(np.float32)
        parameters = [(values, space.is_ordered(name)) for name, values in space.domains.items()]
        described = columns(parameters)
        self._likely = np.ones(len(space), dtype=bool) if likely is None else likely
        self._predicted: list[Array] = []
        self._experts = [_Expert(space, described, None)]
        self._room = GaussianProcess(space.value_indices, described)
        self._room_fitted = 0
        for mean in _sums(log_penalties, weights):
            self._predicted.append(np.where(self._likely, mean, mean - _UNLIKELY_FEASIBLE))
            self._experts.append(_Expert(space, described, mean))
        if not self._predicted:
            self._experts.append(_Expert(space, columns(parameters, rugged=True), None))
        self._belief: _Belief | None = None

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        history = self.history
        count = len(history.told) + len(history.pending)
        random = np.random.default_rng([self._seed, count])
        while self._known:
            if self.free[index := self._known.pop(0)]:
                return index
        opening = self._opening()
        letter = opening[count % len(opening)]
        if len(history.values()) < 2 or (len(history.told) < len(opening) and letter != "."):
            return self._first(letter, random)
        if self._predicted and random.random() < _RANDOM_SHARE:
            return int(random.choice(np.flatnonzero(self.free)))
        belief = self._believe(random)
        return belief.suggest(self.free)

    def outlook(self, study: Study) -> Outlook | None:
        """Estimate the gain from further search; None as long as too little is known."""
        self.load(study)
        if len(self.history.told) < len(_FIRST) or len(self.history.values()) < 2:
            return None
        chance, gain = 0.0, 0.0
        if self.free.any():
            belief = self._believe(np.random.default_rng([self._seed, len(self.history.told)]))
            chance, gain = belief.chance_of_better(self.free)
        return Outlook(chance, gain, len(self.history.told), _found(list(self.history.told.values())))

    # The opening -------------------------------------------------------------------------------------------------

    def _opening(self) -> str:
        if len(self._predicted) > 1:
            return _FIRST_OF_NEXT
        return _FIRST if self._predicted or self._elsewhere else _FIRST_UNAIDED

    def _first(self, letter: str, random: np.random.Generator) -> int:
        new = np.flatnonzero(self.free)
        taken = np.array([*self.history.told, *sorted(self.history.pending)], dtype=int)
        won = [index for index in self._elsewhere if self.free[index]]
        if won and (letter == "w" or (letter == "p" and not self._predicted)):
            return won[0]
        if letter not in "sf" and self._predicted:
            predicted = self._predicted[0 if letter == "P" else -1]
            new = new[_lowest(predicted[new], _POOL)]
            merit = -predicted[new]
            if len(taken):
                twins = _TWINS_OF_NEXT if len(self._predicted) > 1 else _TWINS
                merit = merit - twins * np.exp(-self._steps(new, taken) / _REACH)
            return int(new[_first_of_best(merit)])
        likely = new[self._likely[new]]
        new = likely if len(likely) else new
        if not self._predicted:
            part = self._parts[len(taken) % len(self._parts)]
            left = part[self.free[part]]
            return int(random.choice(left if len(left) else new))
        if letter == "s":
            predicted = self._predicted[-1][new]
            new = new[np.argsort(predicted, kind="stable")[: max(_LEAST_GOOD, int(_GOOD * len(new)))]]
        among = random.choice(new, min(_FAR_AMONG, len(new)), replace=False)
        return int(among[_first_of_best(self._steps(among, taken))] if len(taken) else among[0])

    @cached_property
    def _parts(self) -> Sequence[Indices]:
        return _eighths(self._value_indices, np.random.default_rng(self._seed))

    def _steps(self, indices: Indices, taken: Indices) -> Array:
        """Return each config's distance to the nearest of `taken`: the sum over parameters of shares of their range."""
        nearest = np.full(len(indices), np.inf)
        for index in taken:
            nearest = np.minimum(nearest, np.abs(self._unit[indices] - self._unit[index]).sum(axis=1))
        return nearest

    # The belief --------------------------------------------------------------------------------------------------

    def _believe(self, random: np.random.Generator) -> _Belief:
        """Return the belief after all told trials, cached until more are told."""
        told = self.history.told
        if self._belief is None or self._belief.told != len(told):
            self._belief = self._new_belief(random)
        return self._belief

    def _new_belief(self, random: np.random.Generator) -> _Belief:
        tried = np.array(list(self.history.told))
        values = np.array([math.nan if v is None else v for v in self.history.told.values()])
        for expert in self._experts:
            expert.learn(tried, values)
        kept = _most_telling(values)
        held, times = tried[kept], values[kept]
        pending = np.array(sorted(self.history.pending), dtype=int)
        pool = np.concatenate([self._pool(tried, values, random), pending])
        views = [expert.view(held, times, pool) for expert in self._experts]
        chance = self._chance(tried, np.isfinite(values), pool)
        belief = _Belief(len(tried), pool, views, float(np.nanmin(values)), chance)
        for place in range(len(pool) - len(pending), len(pool)):
            belief.assume(place)
        return belief

    def _chance(self, tried: Indices, ran: NDArray[np.bool_], pool: Indices) -> Array | None:
        """Return the pool's probabilities of running, if there is a prior and a config has failed."""
        if not self._predicted or ran.all():
            return None
        labels = np.where(ran, 1.0, -1.0)
        while (count := max(_LEAST_FOR_FIT, math.ceil(self._room_fitted * _GROWTH), self._room_fitted + 1)) <= min(
            len(tried), _EVIDENCE
        ):
            self._room_fitted = count
            self._room.fit(tried[:count], labels[:count] - 1.0)
        recent = slice(-_EVIDENCE, None)
        mean = self._room.posterior(tried[recent], labels[recent] - 1.0, pool).mean + 1.0
        return np.asarray(np.clip((mean + 1) / 2, _LEAST_CHANCE, 1.0))

    def _pool(self, tried: Indices, values: Array, random: np.random.Generator) -> Indices:
        new = np.flatnonzero(self.free)
        if len(new) <= _POOL:
            return new
        best = tried[np.argsort(values, kind="stable")[:_NEAR]]  # failures come last
        chosen = np.zeros(len(self.free), dtype=bool)
        chosen[random.choice(new, _POOL, replace=False)] = True
        for index in best:
            chosen |= (self._value_indices != self._value_indices[index]).sum(axis=1) == 1
        if self._predicted:
            chosen[new[_lowest(self._predicted[-1][new], _PREDICTED)]] = True
        return np.flatnonzero(chosen & self.free)


class _Expert:
    """Predicted log times (up to a constant and a factor; None: no prediction), and a surrogate of the residuals."""

    def __init__(self, space: Space, described: Sequence[Column], predicted: Array | None) -> None:
        self._surrogate = GaussianProcess(space.value_indices, described)
        self._predicted = predicted
        self._pull = 0.0 if predicted is None else _PULL * float(np.var(predicted))
        self._fitted = 0

    def learn(self, tried: Indices, values: Array) -> None:
        """Fit the surrogate to the first 4 trials, the first 5, and so on by tenths. These counts do not depend on the
        number of trials so far, so a resumed search fits as an unbroken one did."""
        while (count := max(_LEAST_FOR_FIT, math.ceil(self._fitted * _GROWTH), self._fitted + 1)) <= min(
            len(tried), _EVIDENCE
        ):
            self._fitted = count
            if np.isfinite(values[:count]).sum() > 1:
                used, residuals, _, width = self._residuals(tried[:count], values[:count])
                self._surrogate.fit(used, residuals / width)

    def view(self, tried: Indices, values: Array, pool: Indices) -> _View:
        used, residuals, weight, width = self._residuals(tried, values)
        posterior = self._surrogate.posterior(used, residuals / width, pool)
        ran = np.isfinite(values)
        centre = np.full(len(pool), _imputed(values).mean() if self._predicted is None else values[ran].mean())
        if self._predicted is not None:
            centre += weight * (self._predicted[pool] - self._predicted[used].mean())
        judged = residuals if self._predicted is not None else residuals[ran]
        evidence = self._surrogate.evidence(tried[ran], judged / width) - len(judged) * math.log(width)
        return _View(posterior, centre, width, evidence)

    def _residuals(self, tried: Indices, values: Array) -> tuple[Indices, Array, float, float]:
        """Return the trials that count, their residuals (of mean 0), the weight of the prediction, and the residuals'
        standard deviation. With a prediction, failures do not count: they depend on on-chip memory, not on time."""
        weight = 0.0
        if self._predicted is None:
            residuals = _imputed(values) - _imputed(values).mean()
        else:
            ran = np.isfinite(values)
            tried, residuals = tried[ran], values[ran] - values[ran].mean()
            predicted = self._predicted[tried] - self._predicted[tried].mean()
            weight = float((predicted @ residuals + self._pull) / (predicted @ predicted + self._pull))
            residuals = residuals - weight * predicted
        return tried, residuals, weight, max(float(residuals.std()), 1e-9)


@dataclass
class _View:
    """An expert's prediction of the pool: log time is `centre` plus `width` times the posterior."""

    posterior: Posterior
    centre: Array
    width: float
    evidence: float

    @property
    def mean(self) -> Array:
        return self.centre + self.width * self.posterior.mean

    @property
    def deviation(self) -> Array:
        return np.asarray(self.width * np.sqrt(self.posterior.variance))

    def draw(self, places: Indices, count: int, seed: int) -> Array:
        """Draw jointly the log times of some of the pool, one row per draw. The posterior's width is uncertain too, so
        the draws are of a Student-t process."""
        scale = _WIDTH / np.sqrt(np.random.default_rng(seed).chisquare(_FREEDOM, count) / _FREEDOM)
        mean = self.posterior.mean[places]
        away = self.posterior.draw(places, count, seed=seed) - mean
        return np.asarray(self.centre[places] + self.width * (mean + scale[:, None] * away))


def _first_of_best(merit: Array) -> int:
    """Return the place of the first that is not clearly below the largest: processors round sums and powers
    differently, and would each settle a tie in their own way."""
    return int(np.argmax(merit >= merit.max() - _ROUNDING))


def _lowest(values: Array, count: int) -> Indices:
    """Return the places of the `count` lowest, or of all, in their own order; of ties at the end the first are taken,
    where numpy's partitions, and their order, differ between processors."""
    if len(values) <= count:
        return np.arange(len(values))
    last = np.partition(values, count - 1)[count - 1]
    chosen = values < last - _ROUNDING
    tied = np.flatnonzero(~chosen & (values <= last + _ROUNDING))
    chosen[tied[: count - int(chosen.sum())]] = True
    return np.flatnonzero(chosen)


class _Belief:
    """All experts' views of the pool, after `told` trials of which the best has log time `best`."""

    def __init__(
        self, told: int, pool: Indices, views: Sequence[_View], best: float, chance: Array | None = None
    ) -> None:
        self.told, self._pool, self._views, self._best = told, pool, views, best
        self._chance = np.ones(len(pool)) if chance is None else chance
        evidence = np.array([view.evidence for view in views]) * min(1.0, _DECISIVE / told)
        likelihood = np.exp(evidence - evidence.max())
        self._shares = likelihood / likelihood.sum()

    def suggest(self, free: NDArray[np.bool_]) -> int:
        """Return the free config of the largest expected improvement, and assume its predicted time."""
        open_ = free[self._pool]
        gain = self._improvement() * self._chance
        if gain[open_].max() > 0:
            place = int(np.argmax(np.where(open_, gain, -1.0)))
        else:  # nothing promises improvement: the smallest mean
            mean = sum(share * view.mean for share, view in zip(self._shares, self._views, strict=True))
            place = int(np.argmin(np.where(open_, mean, np.inf)))
        self.assume(place)
        return int(self._pool[place])

    def assume(self, place: int) -> None:
        for view in self._views:
            view.posterior.assume(place)

    def chance_of_better(self, free: NDArray[np.bool_]) -> tuple[float, float]:
        """Return the chance of a better config and its median gain, by joint draws of the most promising configs' log
        times. Each expert makes draws in proportion to its share."""
        places = np.flatnonzero(free[self._pool])
        promising = places[np.argsort(-self._improvement()[places], kind="stable")[:_DRAWN_CONFIGS]]
        counts = np.random.default_rng(self.told).multinomial(_DRAWS, self._shares)
        draws = [
            view.draw(promising, count, seed=self.told)
            for view, count in zip(self._views, counts.tolist(), strict=True)
            if count
        ]
        gains = 1 - np.exp(np.minimum(np.concatenate(draws).min(axis=1) - self._best, 0.0))
        better = gains > BETTER
        return float(better.mean()), float(np.median(gains[better])) if better.any() else 0.0

    def _improvement(self) -> Array:
        total = np.zeros(len(self._pool))
        for share, view in zip(self._shares, self._views, strict=True):
            if share < 1e-3:
                continue
            deviation = view.deviation
            ahead = (self._best - view.mean) / deviation
            density = np.exp(-0.5 * ahead**2) / math.sqrt(2 * math.pi)
            total += share * deviation * np.maximum(ahead * _normal_cdf(ahead) + density, 0.0)
        return total


def _eighths(value_indices: NDArray[np.integer[Any]], random: np.random.Generator) -> list[Indices]:
    """Divide the configs, one a row, into eight parts of equal size, in a random order: the first two from different
    halves, the first four from different quarters.

    Each half is that of smaller and that of larger values of the parameter that takes the most values there. If one
    config is drawn from each part, each draw alone is uniform, and the chance that none of the first k is among the
    best few is at most that of k uniform draws with repeats: for all eight it is the product of 1 - p over the parts,
    which is largest where all p are equal.
    """
    parts = [random.permutation(len(value_indices))]
    while len(parts) < 8:
        halves = [_halves(part, value_indices, random) for part in parts]
        parts = [half for pair in zip(*halves, strict=True) for half in pair]
    return [part for part in parts if len(part)]


def _halves(part: Indices, value_indices: NDArray[np.integer[Any]], random: np.random.Generator) -> list[Indices]:
    """Return both halves in a random order; `part` is in a random order, which decides among equal values."""
    counts = [len(np.unique(column)) for column in value_indices[part].T]
    widest = random.choice(np.flatnonzero(np.array(counts) == max(counts, default=0))) if counts else 0
    ordered = part[np.argsort(value_indices[part, widest], kind="stable")] if counts else part
    halves = [ordered[: len(part) // 2], ordered[len(part) // 2 :]]
    return halves if random.random() < 0.5 else halves[::-1]


def _sums(log_penalties: Array | None, weights: Array | None) -> list[Array]:
    """Return the sum of the log penalties and, with weights, the weighted sum; leave out a sum that is the same for all
    configs."""
    if log_penalties is None:
        return []
    sums = [log_penalties.sum(axis=1)] + ([] if weights is None else [log_penalties @ weights])
    return [mean for mean in sums if np.ptp(mean) > 0]


def _found(values: Sequence[float | None]) -> int:
    """Return the number of trials up to the first log time that no later one is better than."""
    enough = min(value for value in values if value is not None) - math.log1p(-BETTER)
    return next(count for count, value in enumerate(values, 1) if value is not None and value <= enough)


def _imputed(values: Array) -> Array:
    """Return the values with failures as slow as the slowest success."""
    return np.where(np.isnan(values), np.nanmax(values), values)


def _most_telling(values: Array) -> Indices:
    """Return all trials or, of too many, the best and an even spread of the others."""
    if len(values) <= _EVIDENCE:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    best, others = order[: _EVIDENCE // 2], np.sort(order[_EVIDENCE // 2 :])
    spread = others[np.linspace(0, len(others) - 1, _EVIDENCE - len(best)).astype(int)]
    return np.sort(np.concatenate([best, spread]))


def _normal_cdf(x: Array) -> Array:
    return np.array([0.5 * math.erfc(-v) for v in (x / math.sqrt(2)).tolist()])
