"""The facts stored with a trial, and one sentence from them on why the config is as fast as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.base import Outcome
from tilewise.tuner.prior import tiling_facts

__all__ = ["PIPE_NAMES", "evidence", "sentence"]

PIPE_NAMES = {"S": "scalar unit", "V": "vector pipe", "MTE2": "inward transfers", "MTE3": "outward transfers"}


def evidence(spec: KernelSpec, problem: Problem, config: Config, target: Target, outcome: Outcome) -> dict[str, Any]:
    """The facts of a trial: how the config cuts the work up, what the device found, and the rate it comes to."""
    tiling = spec.tiling(config, problem)
    facts = {**(tiling_facts(tiling, target) if tiling.axes else {}), **outcome.facts}
    if outcome.timing and outcome.timing.times_us:
        facts["times_us"] = list(outcome.timing.times_us)
    if outcome.timing and spec.bytes(problem):
        facts["gb_s"] = round(spec.bytes(problem) / outcome.timing.time_us / 1e3, 1)
    return facts


def sentence(facts: Mapping[str, Any], time_us: float | None) -> str:
    """Such as "40 programs on 40 cores, no tail rows, double-buffered, vector pipe busy 81% of the time"."""
    parts = [_grid(facts), _tails(facts), _buffers(facts), _bound(facts, time_us)]
    return ", ".join(part for part in parts if part)


def _grid(facts: Mapping[str, Any]) -> str:
    if "programs" not in facts:
        return ""
    waves = facts["waves"]
    programs = f"{facts['programs']} program{'s' * (facts['programs'] != 1)}"
    return f"{programs} on {facts['cores']} cores" + (f" in {waves} waves" if waves > 1 else "")


def _tails(facts: Mapping[str, Any]) -> str:
    rows = facts.get("tail_rows")
    return "" if rows is None else "no tail rows" if rows == 0 else f"{rows} tail row{'s' * (rows > 1)} a program"


def _buffers(facts: Mapping[str, Any]) -> str:
    """Silent where double buffering was asked for and granted, but nothing is loaded in a loop."""
    if facts.get("double_buffered"):
        return "double-buffered"
    return "not double-buffered" if not facts.get("effective_options", {}).get("multibuffer", True) else ""


def _bound(facts: Mapping[str, Any], time_us: float | None) -> str:
    if not time_us:
        return ""
    if "pipes_us" in facts:
        pipe = facts["bound_by"]
        return f"{PIPE_NAMES[pipe]} busy {facts['pipes_us'][pipe] / time_us:.0%} of the time"
    return f"{facts['gb_s'] / 1e3:.2f} TB/s" if "gb_s" in facts else ""
