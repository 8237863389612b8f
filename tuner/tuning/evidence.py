"""Conversion of outcomes to the stored trials: their facts, and one sentence that explains the time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilewise.db.records import ENERGY, METRICS, OBJECTIVE, VERIFIED_BY, Status, Trial, metrics_among
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.hardware.peaks import arithmetic_binds
from tilewise.tuner.measure.outcome import Outcome, Timing
from tilewise.tuner.prior.penalties import tiling_facts

__all__ = ["PIPE_NAMES", "ROW_NAMES", "evidence", "explanation", "timing_fields", "trial_from_outcome"]

PIPE_NAMES = {
    "S": "scalar unit",
    "V": "vector pipe",
    "MTE2": "inward transfers",
    "MTE3": "outward transfers",
    "MTE1": "operand loads",
    "M": "cube pipe",
    "FIX": "result stores",
}

ROW_NAMES = {
    **PIPE_NAMES,
    "waiting": "waiting",
    "launch": "launch",
    "start": "program starts",
    "dispatch": "dispatch",
    "atomics": "serialized atomics",
    "lines": "shared lines",
}
"""Names of the rows that a modelled time is made up of."""


def trial_from_outcome(
    spec: KernelSpec,
    problem: Problem,
    config: Config,
    target: Target,
    outcome: Outcome,
    *,
    facts: Mapping[str, Any] | None = None,
    **about: Any,
) -> Trial:
    """Return the trial of an outcome. `facts` are added to those of `evidence`; `about` holds more fields of the trial.

    A success with an impossible time is a failure of the device: a `runtime` trial.
    """
    outcome = _plausible(outcome)
    known = {**evidence(spec, problem, config, target, outcome), **(facts or {})}
    known |= {} if spec.has_reference else {VERIFIED_BY: "self"}
    trial = Trial(
        config=dict(config),
        status=outcome.status,
        reason=outcome.reason,
        facts=known,
        why=explanation(known, outcome.timing.time_us if outcome.timing else None),
        **timing_fields(outcome.timing),
        **about,
    )
    if trial.status is Status.CORRECT and trial.cost is None:
        return replace(trial, status=Status.RUNTIME, reason=_without_cost(spec, trial))
    return trial


def _without_cost(spec: KernelSpec, trial: Trial) -> str:
    found = trial.metrics.get(spec.objective)
    return f"{spec.objective} was not measured" if found is None else f"{spec.objective} is {found}; expected above 0"


def timing_fields(timing: Timing | None) -> dict[str, Any]:
    """Return the fields of a trial that its timing gives, without the single times."""
    if timing is None:
        return {}
    return {
        "time_us": timing.time_us,
        "p20_us": timing.p20_us,
        "p80_us": timing.p80_us,
        "samples": timing.samples,
        "low_us": timing.low_us,
        "high_us": timing.high_us,
        "dropped": timing.dropped,
        "method": timing.method,
        "l2": timing.l2,
    }


def _plausible(outcome: Outcome) -> Outcome:
    time_us = outcome.timing.time_us if outcome.timing else None
    if outcome.status is not Status.CORRECT or (time_us is not None and 0 < time_us < math.inf):
        return outcome
    return Outcome(Status.RUNTIME, f"the device reported a time of {time_us} us", facts=outcome.facts)


def evidence(spec: KernelSpec, problem: Problem, config: Config, target: Target, outcome: Outcome) -> dict[str, Any]:
    """Return the facts of a trial: how the config divides the work, the device's findings, and the rate reached."""
    tiling = spec.tiling(config, problem)
    facts = {**(tiling_facts(tiling, target) if tiling.axes else {}), **outcome.facts}
    if outcome.timing and outcome.timing.times_us:
        facts["times_us"] = list(outcome.timing.times_us)
    if outcome.timing and spec.bytes(problem):
        facts["gb_s"] = round(spec.bytes(problem) / outcome.timing.time_us / 1e3, 1)
    if outcome.timing and (floor := arithmetic_binds(spec, problem, target.name)) is not None:
        facts["tflop_s"] = round(floor.tflop_s(outcome.timing.time_us), 1)
        facts["share_of_peak"] = round(floor.share(outcome.timing.time_us), 4)
    if outcome.timing:
        energy_uj = metrics_among(outcome.facts).get(ENERGY)
        facts[METRICS] = spec.metrics_of(problem, outcome.timing.time_us, energy_uj)
        facts[OBJECTIVE] = spec.objective
    return {name: fact for name, fact in facts.items() if fact or name not in (METRICS, OBJECTIVE)}


def explanation(facts: Mapping[str, Any], time_us: float | None) -> str:
    """Return for example "40 programs on 40 cores, no tail rows, double-buffered, vector pipe busy 81% of the time"."""
    parts = [_grid(facts), _tails(facts), _buffers(facts), _bound(facts, time_us), _trust(facts)]
    return ", ".join(part for part in parts if part)


def _trust(facts: Mapping[str, Any]) -> str:
    """Say how far a modelled time is to be trusted where that depends on the kernel."""
    if "trust" not in facts:
        return ""
    trust = facts["trust"]
    return f"modelled as {trust['class']}: probably {trust['low']:g} to {trust['high']:g} times as long"


def _grid(facts: Mapping[str, Any]) -> str:
    if "programs" not in facts:
        return ""
    waves = facts["waves"]
    programs = f"{facts['programs']} program{'s' * (facts['programs'] != 1)}"
    return f"{programs} on {facts['cores']} cores" + (f" in {waves} waves" if waves > 1 else "")


def _tails(facts: Mapping[str, Any]) -> str:
    rows = facts.get("tail_rows")
    return "" if rows is None else "no tail rows" if rows == 0 else f"{rows} tail row{'s' * (rows > 1)} per program"


def _buffers(facts: Mapping[str, Any]) -> str:
    """Say nothing if double buffering was requested and granted, but nothing is loaded in a loop."""
    if facts.get("double_buffered"):
        return "double-buffered"
    return "not double-buffered" if not facts.get("effective_options", {}).get("multibuffer", True) else ""


def _bound(facts: Mapping[str, Any], time_us: float | None) -> str:
    if not time_us:
        return ""
    if "pipes_us" in facts:
        pipe = facts["bound_by"]
        return f"{PIPE_NAMES[pipe]} busy {facts['pipes_us'][pipe] / time_us:.0%} of the time"
    if "tflop_s" in facts:
        return f"{facts['tflop_s']:.1f} TFLOP/s, {facts['share_of_peak']:.1%} of the peak"
    return f"{facts['gb_s'] / 1e3:.2f} TB/s" if "gb_s" in facts else ""
