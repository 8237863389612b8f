"""The facts about one config: why it is as fast as it is, or why it cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewise.db.records import Status, Trial
from tilewise.errors import Unavailable
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.explain.memory_traffic import traffic
from tilewise.tuner.explain.variants import compare_variants
from tilewise.tuner.explain.what_if import option_effects, suggest_changes
from tilewise.tuner.hardware.peaks import arithmetic_binds
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.prior.penalties import penalties, score
from tilewise.tuner.space.search_space import check_config, check_tilings
from tilewise.tuner.tuning.evidence import evidence, explanation

if TYPE_CHECKING:
    from tilewise.tuner.devices.ascend_model.device import ModelDevice
    from tilewise.tuner.devices.ascend_model.report.analysis import Analysis

__all__ = ["course", "explain", "model_of"]


def explain(
    device: Device, spec: KernelSpec, problem: Problem, config: Config, trials: Sequence[Trial] = ()
) -> dict[str, Any]:
    """Return all that is known of a config, as the JSON object of `tilewise explain`. Unknown facts are absent.

    The config is compiled and timed unless it breaks one of the kernel's own rules. If the part is modelled,
    `modelled_us` is broken down too (`rows_us` add up to it), and `findings` are those of `tilewise lint`. On a
    modelled device the effects of compile options and suggested changes are compiled and timed as well. The best time
    of each of the kernel's variants comes from the stored `trials` of the problem, or is measured now.

    Raises `BadConfig` if it is not a config of the space, and `BadSpec` if its tiling does not match its launches.
    """
    broken = check_config(spec, problem, device.target, config)
    check_tilings(spec, problem, [config])
    outcome = (
        Outcome(Status.CONSTRAINTS, f"breaks the rule: {broken}")
        if broken
        else _evaluate(device, spec, problem, config)
    )
    factors = penalties(spec, problem, config, device.target)
    facts = evidence(spec, problem, config, device.target, outcome)
    body: dict[str, Any] = {
        "kernel": spec.name,
        "dims": dict(problem.shape),
        "dtype": problem.dtype,
        "device": device.target.name,
        "clock": str(device.clock),
        "toolchain": device.scope(spec, problem).toolchain,
        "config": dict(config),
        "feasible": outcome.status is Status.CORRECT,
        "reason": outcome.reason,
        **facts,
        "penalties": {name: round(factor, 4) for name, factor in factors.items()},
        "prior_score": round(score(factors), 4),
    }
    if outcome.timing:
        body["time_us"] = outcome.timing.time_us
        body["why"] = explanation(facts, outcome.timing.time_us)
        if floor := device.floor_us(spec, problem):
            body["floor_us"] = round(floor, 3)
        if bound := arithmetic_binds(spec, problem, device.target.name):
            body |= {"arithmetic_us": round(bound.floor_us, 3), "peak_tflop_s": bound.peak_tflop_s}
            body["tflop_s"] = round(bound.tflop_s(outcome.timing.time_us), 1)
    model = model_of(device)
    if model and not broken:
        body |= _modelled(model, spec, problem, config, outcome)
    if model and model is device and not broken:
        if outcome.timing:
            body["options"] = option_effects(model, spec, problem, config, outcome)
        body["suggestions"] = suggest_changes(model, spec, problem, config, outcome)
    if sides := compare_variants(device, spec, problem, trials):
        body["variants"] = sides
    return body


def course(device: Device, spec: KernelSpec, problem: Problem, config: Config) -> Analysis | None:
    """Return the analysis of a feasible config's modelled time, or None on a device that is not modelled."""
    model = model_of(device)
    return model.analyse(spec, problem, config) if model else None


def model_of(device: Device) -> ModelDevice | None:
    """Return the device itself if it is modelled, or the model of a real NPU's part; None if there is none."""
    from tilewise.tuner.devices.ascend_model.device import ModelDevice
    from tilewise.tuner.devices.npu.device import NpuDevice

    if isinstance(device, NpuDevice):
        return device.model()
    return device if isinstance(device, ModelDevice) else None


def _modelled(
    model: ModelDevice, spec: KernelSpec, problem: Problem, config: Config, outcome: Outcome
) -> dict[str, Any]:
    """Return the findings in the compiled code, and the breakdown of the modelled time of a config that has one.

    `not_modelled` is the reason if the model cannot time a config that was timed.
    """
    body: dict[str, Any] = {}
    found: Analysis | None = None
    if outcome.timing:
        try:
            found = model.analyse(spec, problem, config)
            body = _breakdown(spec, problem, config, found)
        except Unavailable as error:
            body = {"not_modelled": str(error)}
    try:
        linted = model.lint(spec, problem, config, found)
    except Unavailable as error:
        return {"not_modelled": str(error)} | body
    return body | {"findings": [each.to_json(linted.time_us) for each in linted.findings]}


def _breakdown(spec: KernelSpec, problem: Problem, config: Config, found: Analysis) -> dict[str, Any]:
    lines = [
        {
            "line": str(line.place),
            "source": line.place.text,
            "path_us": round(line.path_us, 3),
            "pipes_us": {pipe: round(busy, 3) for pipe, busy in line.pipes_us.items() if busy},
        }
        for line in found.lines()
    ]
    return {
        "modelled_us": round(found.time_us, 4),
        "modelled_between_us": [round(end, 4) for end in found.between_us],
        "rows_us": {name: round(time, 3) for name, time in found.rows().items()},
        "critical_path": [
            {"pipe": step.pipe, "line": str(step.place) if step.place else "", "us": round(step.time_us, 3)}
            for step in found.critical_path()
        ],
        "lines": lines,
        "traffic": traffic(spec, problem, config, found.traffic()),
    }


def _evaluate(device: Device, spec: KernelSpec, problem: Problem, config: Config) -> Outcome:
    return next(iter(device.evaluate(spec, problem, [config])))
