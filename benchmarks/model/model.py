"""`tilewise bench model`: modelled times against timings that others measured on a real part."""

from __future__ import annotations

import importlib
import json
import platform
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from tilewise.db.records import Status
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.hardware.ascend_costs import FIGURES, REPEAT_CYCLES, Figure, costs
from tilewise.tuner.hardware.ascend_parts import part
from tilewise.tuner.hardware.calibrated_costs import model_fingerprint
from tilewise.tuner.space.problem_checks import make_problem

__all__ = ["bench_model", "figures_fitted_on"]

_HEADLINE, _HEADLINE_CASE = "headline case", "sum_fused"
"""The words for a case in the sources of figures, where they are not its id."""


def bench_model() -> dict[str, Any]:
    """Compare every published timing for which the project has a kernel, and return the JSON.

    A row holds published and modelled time, the interval from the ranges of the costs, and both times' ratios to the
    case's fastest config. It also holds the time with its case left out: every figure that the case's timings helped to
    determine is put at the middle of its range. Raises `Unavailable` if the Ascend toolchain is not installed.
    """
    if reason := toolchain.unavailable_reason():
        raise Unavailable(f"bench model {reason}")
    published = json.loads(files("tilewise.benchmarks.model").joinpath("published.json").read_text())
    modelled = [_model(case, published["part"]) for case in published["cases"] if case["kernel"]]
    rows = [row for group in _groups(modelled).values() for row in _with_ratios(group)]
    missing = sorted({case["id"] for case in published["cases"] if not case["kernel"]})
    return {
        "command": "tilewise bench model --json",
        "part": published["part"],
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": platform.python_version(),
        "toolchain": f"{toolchain.fingerprint()}, model {model_fingerprint(part(published['part']))}",
        "source": published["source"],
        "cases": rows,
        "summary": _summary(rows, missing),
    }


def _model(case: Mapping[str, Any], name: str) -> dict[str, Any]:
    folder = read_settings().cache_folder
    spec = _load(case["kernel"])
    problem = make_problem(spec, case["dims"], case["dtype"])
    target = toolchain.target(name, folder)
    options = {k: v for k, v in spec.default(problem, target).items() if k in spec.options()}
    outcome, machines = model_config(spec, problem, {**options, **case["config"]}, target, folder)
    row = {key: case[key] for key in ("id", "kernel", "dims", "dtype", "config", "published_us", "used_for_fitting")}
    row |= {"feasible": outcome.status is Status.CORRECT, "double_buffered": outcome.facts.get("double_buffered")}
    if outcome.reason:
        row["reason"] = outcome.reason
    if "published_failure" in case:
        row["published_failure"] = case["published_failure"]
    if machines is not None:
        ends = {"modelled_us": "value", "low_us": "low", "high_us": "high"}
        row |= {key: round(machines.time(end).time_us, 2) for key, end in ends.items()}  # type: ignore[arg-type]
        middles = {name: replace(f, value=(f.low + f.high) / 2) for name, f in figures_fitted_on(case["id"]).items()}
        row["left_out_us"] = round(machines.time_at(costs(instead=middles)).time_us, 2)
    return {key: value for key, value in row.items() if value is not None}


def figures_fitted_on(case: str) -> dict[str, Figure]:
    """Return the figures whose source names the case among the timings that they were fitted to."""
    table = {**FIGURES, **REPEAT_CYCLES}
    found: dict[str, Figure] = {}
    for name, figure in table.items():
        like = re.search(r"fitted as (\w+)", figure.source)
        source = table[like[1]].source if like else figure.source
        if "fitted" in source and case in source.replace(_HEADLINE, _HEADLINE_CASE):
            found[name] = figure
    return found


def _load(kernel: str) -> KernelSpec:
    """Load a registered kernel, or `module:ATTRIBUTE` for one that exists only for its published timings."""
    module, colon, attribute = kernel.partition(":")
    if not colon:
        return registry.load(kernel)
    spec: KernelSpec = getattr(importlib.import_module(module), attribute)
    return spec


def _groups(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["id"], []).append(row)
    return groups


def _with_ratios(group: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the ratios to the case's fastest config, which are what a search needs to get right."""
    both = [row for row in group if "published_us" in row and "modelled_us" in row]
    for way in ("published", "modelled", "left_out"):
        best = min((row[f"{way}_us"] for row in both), default=None)
        for row in both:
            row[f"{way}_ratio"] = round(row[f"{way}_us"] / best, 3)
    return list(group)


def _summary(rows: Sequence[Mapping[str, Any]], missing: Sequence[str]) -> dict[str, Any]:
    both = [row for row in rows if "published_ratio" in row]
    judged = [row for row in both if not row["used_for_fitting"]]
    cases = dict.fromkeys(row["id"] for row in both)
    by_case = {case: [row for row in both if row["id"] == case] for case in cases}
    picks = {case: round(_cost_of_pick(found), 4) for case, found in by_case.items()}
    return {
        **_errors(both),
        "judged": _errors(judged) | _against_one(judged) if judged else {"compared": 0},
        "left_out": {case: errors for case, found in by_case.items() if (errors := _left_out(case, found))},
        "cost_of_trusting_the_pick": picks,
        "worst_cost_of_trusting_the_pick": max(picks.values()),
        "feasibility_disagreements": sum(row["feasible"] == ("published_failure" in row) for row in rows),
        "no_kernel_yet": list(missing),
    }


def _errors(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the errors of the modelled times, and of their ratios to the case's best."""
    ratios: list[float] = [row["modelled_ratio"] / row["published_ratio"] - 1 for row in rows]
    largest: float = max(ratios, key=abs)
    times: list[float] = [row["modelled_us"] / row["published_us"] - 1 for row in rows]
    return {
        "compared": len(rows),
        "mean_absolute_ratio_error": round(statistics.fmean(map(abs, ratios)), 4),
        "largest_ratio_error": round(largest, 4),
        "mean_absolute_time_error": round(statistics.fmean(map(abs, times)), 4),
        "within_interval": sum(row["low_us"] <= row["published_us"] <= row["high_us"] for row in rows),
    }


def _left_out(case: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the errors of a case that determined no figure, with the figures that it would have determined.

    The ratio of a config that is the fastest of both is 1 whatever the model says: such a config is not compared. The
    result is empty if the case has no other.
    """
    free = [row for row in rows if not row["published_ratio"] == row["left_out_ratio"] == 1]
    if not free:
        return {}
    errors = [abs(row["left_out_ratio"] / row["published_ratio"] - 1) for row in free]
    times = [abs(row["left_out_us"] / row["published_us"] - 1) for row in rows]
    return {
        "figures": sorted(figures_fitted_on(case)),
        "compared": len(free),
        "mean_absolute_ratio_error": round(statistics.fmean(errors), 4),
        "largest_absolute_ratio_error": round(max(errors), 4),
        "mean_absolute_ratio_error_of_one": round(statistics.fmean(_error_of_one(row) for row in free), 4),
        "mean_absolute_time_error": round(statistics.fmean(times), 4),
        "cost_of_trusting_the_pick": round(_cost_of_pick(rows, "left_out_us"), 4),
    }


def _against_one(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Compare the modelled ratios with a model that predicts the same time for all configs of a case."""
    free = [row for row in rows if not row["published_ratio"] == row["modelled_ratio"] == 1]
    errors = [(abs(row["modelled_ratio"] / row["published_ratio"] - 1), _error_of_one(row)) for row in free]
    return {
        "own_denominator": len(rows) - len(free),
        "one_is_better": sum(one < error for error, one in errors),
        "one_is_as_good": sum(one == error for error, one in errors),
    }


def _error_of_one(row: Mapping[str, Any]) -> float:
    return abs(1 / float(row["published_ratio"]) - 1)


def _cost_of_pick(rows: Sequence[Mapping[str, Any]], by: str = "modelled_us") -> float:
    """Return the published time of the model's best config over the best published time."""
    pick = min(rows, key=lambda row: row[by])
    return float(pick["published_us"] / min(row["published_us"] for row in rows))
