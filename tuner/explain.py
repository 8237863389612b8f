"""Why one config is as fast, or as impossible, as it is."""

from __future__ import annotations

from typing import Any

from tilewise.db.records import Status
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.base import Device, Outcome
from tilewise.tuner.prior import penalties, score
from tilewise.tuner.space import check_config
from tilewise.tuner.why import evidence, sentence

__all__ = ["explain"]


def explain(device: Device, spec: KernelSpec, problem: Problem, config: Config) -> dict[str, Any]:
    """All that is known of a config, as the JSON object of `tilewise explain`; absent means unknown.

    The config is compiled and timed unless it breaks one of the kernel's own rules. Raises `BadConfig` where it is no
    config of the space.
    """
    broken = check_config(spec, problem, device.target, config)
    outcome = (
        Outcome(Status.CONSTRAINTS, f"breaks the rule: {broken}")
        if broken
        else _evaluate(device, spec, problem, config)
    )
    factors = penalties(spec, problem, config, device.target)
    facts = evidence(spec, problem, config, device.target, outcome)
    body: dict[str, Any] = {
        "kernel": spec.name,
        "dims": dict(problem.dims),
        "dtype": problem.dtype,
        "device": device.target.name,
        "clock": str(device.clock),
        "toolchain": device.toolchain,
        "config": dict(config),
        "feasible": outcome.status is Status.CORRECT,
        "reason": outcome.reason,
        **facts,
        "penalties": {name: round(factor, 4) for name, factor in factors.items()},
        "prior_score": round(score(factors), 4),
    }
    if outcome.timing:
        body["time_us"] = outcome.timing.time_us
        body["why"] = sentence(facts, outcome.timing.time_us)
        if floor := device.floor_us(spec, problem):
            body["floor_us"] = round(floor, 3)
    return body


def _evaluate(device: Device, spec: KernelSpec, problem: Problem, config: Config) -> Outcome:
    return next(iter(device.evaluate(spec, problem, [config])))
