"""The effect of one change to a config: a flipped compile option, or another value of one parameter.

Each change is compiled and timed, never guessed. This is meant for modelled parts, where it is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewise.db.records import Status
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, Value
from tilewise.tuner.devices.base import Device
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.space.search_space import Space, enumerate_space
from tilewise.tuner.tuning.evidence import evidence, explanation

__all__ = ["option_effects", "suggest_changes"]

_STEPS = 2
"""Number of values tried on either side of a parameter's own."""

_SHRINKS = 4
"""Number of smaller values of a parameter tried if a config must shrink."""

_LARGEST_RATIO = 0.98
"""Share of the config's time that a faster config may take at most to be suggested."""


def option_effects(
    device: Device, spec: KernelSpec, problem: Problem, config: Config, outcome: Outcome
) -> list[dict[str, Any]]:
    """Time the config with each boolean compile option flipped. A flipped config that fails has its reason instead."""
    switches = sorted(name for name in spec.options() if isinstance(config.get(name), bool))
    flipped = [{**config, name: not config[name]} for name in switches]
    assert outcome.timing is not None, "option effects need a config that has a time"
    rows = []
    for name, other, found in zip(switches, flipped, device.evaluate(spec, problem, flipped), strict=True):
        row: dict[str, Any] = {"option": name, "value": config[name], "other": other[name]}
        effective = outcome.facts.get("effective_options", {}).get(name)
        if effective is not None:
            row["effective"] = effective
        if found.timing:
            row |= {"other_us": found.timing.time_us, "ratio": round(found.timing.time_us / outcome.timing.time_us, 4)}
        else:
            row["reason"] = found.reason
        rows.append(row)
    return rows


def suggest_changes(
    device: Device, spec: KernelSpec, problem: Problem, config: Config, outcome: Outcome
) -> list[dict[str, Any]]:
    """Return changes of one parameter that help, each compiled and timed, with their effect in words.

    If on-chip memory overflows, or lacks the room for the double buffering that was requested, these are the largest
    smaller value of each parameter that cures it. Otherwise it is the best of a few steps in each parameter, if that is
    at least 2% faster.
    """
    space = enumerate_space(spec, problem, device.target)
    if _overflows(outcome) or _lost_double_buffer(config, outcome):
        found = [cure for name in space.domains for cure in _cure(device, spec, problem, config, name, space)]
    elif outcome.timing and space.index(config) is not None:
        others = list(_neighbours(space, config))
        timed = [*zip(others, device.evaluate(spec, problem, others), strict=True)]
        limit = _LARGEST_RATIO * outcome.timing.time_us
        faster = [(other, each) for other, each in timed if each.timing and each.timing.time_us <= limit]
        found = sorted(faster, key=lambda pair: _time_us(pair[1]))[:1]
    else:
        return []
    rows = [_suggestion(spec, problem, device.target, config, outcome, *pair) for pair in found]
    return sorted(rows, key=lambda row: float(row["time_us"]))


def _time_us(outcome: Outcome) -> float:
    assert outcome.timing is not None, "only configs that have a time are suggested"
    return outcome.timing.time_us


def _overflows(outcome: Outcome) -> bool:
    bits = outcome.facts.get("on_chip_bits", {})
    return outcome.status is Status.COMPILE and bits.get("required", 0) > bits.get("available", 0)


def _lost_double_buffer(config: Config, outcome: Outcome) -> bool:
    effective = outcome.facts.get("effective_options", {}).get("multibuffer")
    return bool(config.get("multibuffer")) and effective is False


def _cure(
    device: Device, spec: KernelSpec, problem: Problem, config: Config, name: str, space: Space
) -> Iterator[tuple[Config, Outcome]]:
    """Yield the config with the largest smaller value of one parameter that compiles with its options in effect."""
    if not space.is_ordered(name):
        return
    own = config[name]
    assert isinstance(own, (int, float)), "ordered values are numbers"
    smaller = [value for value in reversed(space.domains[name]) if isinstance(value, (int, float)) and value < own]
    others = [other for value in smaller if space.index(other := {**config, name: value}) is not None][:_SHRINKS]
    for other, found in zip(others, device.evaluate(spec, problem, others), strict=True):
        if found.timing and not _lost_double_buffer(other, found):
            yield other, found
            return


def _neighbours(space: Space, config: Config) -> Iterator[Config]:
    for name, values in space.domains.items():
        own = values.index(config[name])
        near: Sequence[Value] = values[max(0, own - _STEPS) : own + _STEPS + 1] if space.is_ordered(name) else values
        for value in near:
            if value != config[name] and space.index(other := {**config, name: value}) is not None:
                yield other


def _suggestion(
    spec: KernelSpec,
    problem: Problem,
    target: Target,
    config: Config,
    outcome: Outcome,
    other: Config,
    found: Outcome,
) -> dict[str, Any]:
    """Return a suggestion: the change, the time with it, what it cures, and the evidence in a sentence."""
    ((name, value),) = ((n, v) for n, v in other.items() if v != config[n])
    time_us = _time_us(found)
    row: dict[str, Any] = {"parameter": name, "value": value, "instead_of": config[name], "time_us": time_us}
    if outcome.timing:
        row["ratio"] = round(time_us / outcome.timing.time_us, 4)
    if cure := _cured(config, outcome):
        row["cures"] = cure
    return {**row, "why": explanation(evidence(spec, problem, other, target, found), time_us)}


def _cured(config: Config, outcome: Outcome) -> str:
    bits = outcome.facts.get("on_chip_bits", {})
    if _overflows(outcome):
        over, available = (bits["required"] - bits["available"]) / 8192, bits["available"] / 8192
        return f"it fits; the given tile is {over:.0f} KiB larger than the {available:.0f} KiB on chip"
    if _lost_double_buffer(config, outcome):
        taken, available = bits["required"] / 8192, bits["available"] / 8192
        return f"it keeps double buffering; the given tile takes {taken:.0f} of {available:.0f} KiB even without it"
    return ""
