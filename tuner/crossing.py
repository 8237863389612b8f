"""Winners of a few shapes timed on each other: what tells a portfolio which of them can stand in for which."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from tilewise.db.records import Config, Result, Status, Trial, digest
from tilewise.db.store import Store
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.devices.base import Device, Outcome
from tilewise.tuner.fitting import fitted
from tilewise.tuner.problem import scope
from tilewise.tuner.why import evidence, sentence

__all__ = ["cross"]


def cross(
    spec: KernelSpec,
    problems: Sequence[Problem],
    device: Device,
    store: Store,
    *,
    progress: Callable[[str], None] = lambda line: None,
) -> int:
    """Time the winner of each problem on every other, as it fits there, and keep the trials; returns how many.

    One that beats the winner so far is verified, so that it becomes the best. Problems without a winner have no part.
    """
    results = [store.result(scope(spec, problem, device)) for problem in problems]
    tuned = [(problem, result) for problem, result in zip(problems, results, strict=True) if result.winner]
    count = 0
    for place, (problem, result) in enumerate(tuned, 1):
        progress(f"{spec.name}: winners on each other, {place} of {len(tuned)}")
        others = (other.winner.config for _, other in tuned if other.winner)
        count += _time(spec, problem, device, store, result, list(others))
    return count


def _time(
    spec: KernelSpec, problem: Problem, device: Device, store: Store, result: Result, winners: Sequence[Config]
) -> int:
    moved = (fitted(spec, problem, device.target, config) for config in winners)
    known = {trial.config_key for trial in store.trials(result.scope)}
    new = {digest(dict(config)): config for config in moved if config is not None}
    configs = [config for key, config in new.items() if key not in known]
    outcomes = zip(configs, device.evaluate(spec, problem, configs), strict=True)
    trials = [_trial(spec, problem, device, config, outcome) for config, outcome in outcomes]
    store.record(result.scope, trials)
    assert result.winner is not None and result.winner.time_us is not None, "winners have times"
    for trial in sorted((t for t in trials if t.time_us), key=lambda trial: trial.time_us or 0.0):
        if (trial.time_us or 0.0) >= result.winner.time_us:
            break
        verdict = device.verify(spec, problem, trial.config)
        store.verify(result.scope, trial.config, agreed=verdict.agreed, reason=verdict.reason, status=verdict.status)
    return len(trials)


def _trial(spec: KernelSpec, problem: Problem, device: Device, config: Config, outcome: Outcome) -> Trial:
    facts = evidence(spec, problem, config, device.target, outcome)
    timing = outcome.timing
    trial = Trial(config=config, status=outcome.status, reason=outcome.reason, search="crossing", facts=facts)
    if outcome.status is not Status.CORRECT or timing is None:
        return trial
    return dataclasses.replace(
        trial,
        time_us=timing.time_us,
        p20_us=timing.p20_us,
        p80_us=timing.p80_us,
        samples=timing.samples,
        why=sentence(facts, timing.time_us),
    )
