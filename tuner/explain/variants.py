"""The variants of a kernel compared at one shape: which is fastest, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewise.db.records import Status, Trial
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.prior.penalties import rank_by_prior
from tilewise.tuner.space.search_space import Space, enumerate_space

__all__ = ["compare_variants"]

_TIMED_NOW = 3
"""Number of configs timed now for a variant without stored trials: those that the prior ranks first."""


def compare_variants(
    device: Device, spec: KernelSpec, problem: Problem, trials: Sequence[Trial]
) -> list[dict[str, Any]]:
    """Compare the values of each parameter that selects a variant, that is, whose values are names.

    Each parameter gets the best time of each value, fastest first, and a sentence. Times come from the stored `trials`
    of this problem and toolchain. If a value was never tried, the few configs that the prior ranks first are timed now.
    A value that no config runs with is omitted. Returns an empty list if the kernel has no variants.
    """
    space = enumerate_space(spec, problem, device.target)
    return [_sides(device, spec, problem, space, name, trials) for name in space.domains if _is_variant(space, name)]


def _is_variant(space: Space, name: str) -> bool:
    values = {config[name] for config in space.configs}
    return len(values) > 1 and all(isinstance(value, str) for value in values)


def _sides(
    device: Device, spec: KernelSpec, problem: Problem, space: Space, name: str, trials: Sequence[Trial]
) -> dict[str, Any]:
    sides: list[dict[str, Any]] = []
    for value in dict.fromkeys(config[name] for config in space.configs):
        known = [t for t in trials if t.config.get(name) == value and t.status is Status.CORRECT and t.time_us]
        timed: list[tuple[float, Config, str]] = [(t.time_us or 0.0, t.config, "stored") for t in known]
        timed = timed or _time_now(device, spec, problem, [config for config in space.configs if config[name] == value])
        if timed:
            time_us, config, origin = min(timed, key=lambda side: side[0])
            sides.append({"value": value, "time_us": round(time_us, 4), "config": dict(config), "from": origin})
    sides.sort(key=lambda side: side["time_us"])
    return {"parameter": name, "sides": sides, "says": _sentence(sides)}


def _time_now(
    device: Device, spec: KernelSpec, problem: Problem, configs: Sequence[Config]
) -> list[tuple[float, Config, str]]:
    chosen = rank_by_prior(spec, problem, configs, device.target)[:_TIMED_NOW]
    outcomes = zip(chosen, device.evaluate(spec, problem, chosen), strict=True)
    return [(outcome.timing.time_us, config, "timed now") for config, outcome in outcomes if outcome.timing]


def _sentence(sides: Sequence[dict[str, Any]]) -> str:
    if not sides:
        return "no variant runs"
    first, *others = sides
    if not others:
        return f"{first['value']} is the only variant that runs"
    behind = ", ".join(f"{s['value']} {s['time_us']:.2f} us ({s['time_us'] / first['time_us']:.2f}x)" for s in others)
    return f"{first['value']} is fastest here, {first['time_us']:.2f} us; {behind}"
