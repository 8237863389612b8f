"""Configs that are good for a few shapes timed on the others: what tells a portfolio which can stand in for which.

First the winners, each on every other shape. What that teaches is then asked which of all proven configs it expects to
be fastest on each shape, and those are timed too: a forecast is best corrected where it is most hopeful.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewise.db.records import Config, Result, digest
from tilewise.db.store import Store
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.portfolio.build import portfolios
from tilewise.tuner.space.nearest_config import adapt_config
from tilewise.tuner.tuning.evidence import trial_from_outcome

__all__ = ["cross_evaluate"]


_EXPECTED = 8
"""Configs timed on each shape because they are expected to be the fastest there, if they were not before."""


def cross_evaluate(
    spec: KernelSpec,
    problems: Sequence[Problem],
    device: Device,
    store: Store,
    *,
    progress: Callable[[str], None] = lambda line: None,
) -> int:
    """Time what is good for one of the problems on the others, as it fits there, and keep the trials; returns how many.

    One that beats the winner so far is verified, so that it becomes the best. Problems without a winner have no part.
    """
    results = [store.result(device.scope(spec, problem)) for problem in problems]
    tuned = [(problem, result) for problem, result in zip(problems, results, strict=True) if result.winner]
    winners = [result.winner.config for _, result in tuned if result.winner]
    count = 0
    for place, (problem, result) in enumerate(tuned, 1):
        progress(f"{spec.name}: winners on each other, {place} of {len(tuned)}")
        moved = (adapt_config(spec, problem, device.target, config) for config in winners)
        count += _time(spec, problem, device, store, result, [config for config in moved if config is not None])
    if len(tuned) < 2:
        return count
    [portfolio, *_] = portfolios(((result.scope, store.trials(result.scope)) for _, result in tuned), spec)
    for place, (problem, _) in enumerate(tuned, 1):
        progress(f"{spec.name}: what is expected to be fast, {place} of {len(tuned)}")
        expected = portfolio.picks(spec, problem.dims, device.target)[:_EXPECTED]
        count += _time(spec, problem, device, store, store.result(device.scope(spec, problem)), expected)
    return count


def _time(
    spec: KernelSpec, problem: Problem, device: Device, store: Store, result: Result, wanted: Sequence[Config]
) -> int:
    known = {trial.config_key for trial in store.trials(result.scope)}
    new = {digest(dict(config)): config for config in wanted}
    configs = [config for key, config in new.items() if key not in known]
    outcomes = zip(configs, device.evaluate(spec, problem, configs), strict=True)
    trials = [
        trial_from_outcome(spec, problem, config, device.target, outcome, search="crossing")
        for config, outcome in outcomes
    ]
    store.record(result.scope, trials)
    assert result.winner is not None and result.winner.time_us is not None, "winners have times"
    for trial in sorted((t for t in trials if t.time_us), key=lambda trial: trial.time_us or 0.0):
        if (trial.time_us or 0.0) >= result.winner.time_us:
            break
        verdict = device.verify(spec, problem, trial.config)
        store.verify(result.scope, trial.config, agreed=verdict.agreed, reason=verdict.reason, status=verdict.status)
    return len(trials)
