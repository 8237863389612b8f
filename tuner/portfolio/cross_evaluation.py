"""Cross-evaluation: good configs of some shapes timed on the others, so that a portfolio knows how well they transfer.

First each winner is timed on every other shape. A forecast from all trials then ranks the proven configs for each
shape, and the leaders are timed too, because a forecast is corrected best where it is most optimistic.
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
"""Number of configs expected to be fastest that are timed on each shape, unless they were before. Chosen by hand and
never ablated."""


def cross_evaluate(
    spec: KernelSpec,
    problems: Sequence[Problem],
    device: Device,
    store: Store,
    *,
    progress: Callable[[str], None] = lambda line: None,
) -> int:
    """Time good configs of each problem on the others, adapted to their spaces. Store the trials; return their number.

    A config that beats the winner is verified, so that it becomes the best. Problems without a winner are skipped.
    """
    results = [store.result(device.scope(spec, problem)) for problem in problems]
    tuned = [(problem, result) for problem, result in zip(problems, results, strict=True) if result.winner]
    winners = [result.winner.config for _, result in tuned if result.winner]
    count = 0
    for ordinal, (problem, result) in enumerate(tuned, 1):
        progress(f"{spec.name}: timing winners on shape {ordinal} of {len(tuned)}")
        moved = (adapt_config(spec, problem, device.target, config) for config in winners)
        count += _time(spec, problem, device, store, result, [config for config in moved if config is not None])
    if len(tuned) < 2:
        return count
    [portfolio, *_] = portfolios(((result.scope, store.trials(result.scope)) for _, result in tuned), spec)
    for ordinal, (problem, _) in enumerate(tuned, 1):
        progress(f"{spec.name}: timing expected leaders on shape {ordinal} of {len(tuned)}")
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
