"""What would become of a config if one thing about it were different: compile options, and one step in a parameter.

Each answer is compiled and timed, never guessed; that is cheap on a modelled part, for which this is meant.
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
"""How many values away from its own, either way, a parameter is tried."""

_SHRINKS = 4
"""How many smaller values of a parameter are tried where a config must shrink."""

_WORTH_A_WORD = 0.98
"""Of a config's time: what another must be under to be suggested."""


def option_effects(
    device: Device, spec: KernelSpec, problem: Problem, config: Config, outcome: Outcome
) -> list[dict[str, Any]]:
    """For each switch among the compile options, the config's time with it the other way round; absent where it then
    fails, with the reason."""
    switches = sorted(name for name in spec.options() if isinstance(config.get(name), bool))
    flipped = [{**config, name: not config[name]} for name in switches]
    assert outcome.timing is not None, "the effects of options are those on a config that has a time"
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
    """Changes of one parameter that help, each compiled and timed, with what they do for the config in words.

    Where on-chip memory overflows, or double buffering was asked for and lost to it, the largest smaller tile of each
    parameter that cures it; else the best among a few steps in each parameter, if it is at least 2% faster.
    """
    space = enumerate_space(spec, problem, device.target)
    if _overflows(outcome) or _lost_double_buffer(config, outcome):
        found = [cure for name in space.domains for cure in _cure(device, spec, problem, config, name, space)]
    elif outcome.timing and space.index(config) is not None:
        others = list(_neighbours(space, config))
        timed = [*zip(others, device.evaluate(spec, problem, others), strict=True)]
        limit = _WORTH_A_WORD * outcome.timing.time_us
        faster = [(other, each) for other, each in timed if each.timing and each.timing.time_us <= limit]
        found = sorted(faster, key=lambda pair: _time_us(pair[1]))[:1]
    else:
        return []
    told = [_told(spec, problem, device.target, config, outcome, *pair) for pair in found]
    return sorted(told, key=lambda row: float(row["time_us"]))


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
    """The config with the largest smaller value of one parameter that compiles with the options that it asks for."""
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
        at = values.index(config[name])
        near: Sequence[Value] = values[max(0, at - _STEPS) : at + _STEPS + 1] if space.is_ordered(name) else values
        for value in near:
            if value != config[name] and space.index(other := {**config, name: value}) is not None:
                yield other


def _told(
    spec: KernelSpec,
    problem: Problem,
    target: Target,
    config: Config,
    outcome: Outcome,
    other: Config,
    found: Outcome,
) -> dict[str, Any]:
    """A suggestion: what to change, the time then, what it cures, and the evidence in a sentence."""
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
        over, there = (bits["required"] - bits["available"]) / 8192, bits["available"] / 8192
        return f"it fits; as given, the tile is {over:.0f} KiB larger than the {there:.0f} KiB on chip"
    if _lost_double_buffer(config, outcome):
        taken, there = bits["required"] / 8192, bits["available"] / 8192
        return f"it keeps double buffering; as given, {taken:.0f} of {there:.0f} KiB are taken without it"
    return ""
