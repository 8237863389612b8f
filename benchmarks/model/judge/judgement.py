"""The judgement: every case priced with figures fitted without its kernel, and what that says of times and picks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.benchmarks.model.judge.cases import Case, published_cases
from tilewise.benchmarks.model.judge.fit import changed, fitted_names, linear, solve, with_changes
from tilewise.benchmarks.model.judge.pricing import Timed, recorded, timed_us
from tilewise.tuner.hardware.ascend_costs import FIGURES, INTERVAL, REPEAT_CYCLES

__all__ = ["judge"]

_Row = dict[str, Any]


def judge(folder: Path, *, refit: bool = True, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Time every published case, leaving its kernel out of the fit, and return rows, kernels and the summary.

    Without `refit` the shipped figures are used for every kernel, which is not a judgement: they saw its timings.
    """
    timed, disagreements = recorded(_judged_cases(), folder)
    names = fitted_names() if refit else []
    around = np.zeros(len(names))
    sloped = [row for row in timed if not row.case.micro]
    model = linear(sloped, names, around, lambda name: progress(f"slope of {name}")) if names else None
    everything = {} if model is None else _fit(names, solve(model, around, [_fits(row) for row in sloped]))
    rows: list[_Row] = []
    for family in dict.fromkeys(row.case.family for row in timed):
        progress(family)
        changes = around
        if model is not None:
            changes = solve(model, around, [_fits(row) and row.case.family != family for row in sloped])
        chosen = with_changes(names, changes)
        low, high = INTERVAL
        for row in (row for row in timed if row.case.family == family):
            us = timed_us(row, chosen)
            rows.append(_row(row, us, (us * low, us * high)))
    _add_ratios(rows)
    return {
        "rows": rows,
        "fit_on_everything": everything,
        "feasibility_disagreements": [
            {"id": case.id, "config": dict(case.rows[index].config), "reason": reason}
            for case, index, reason in disagreements
        ],
        "summary": _summary(rows),
    }


def _judged_cases() -> list[Case]:
    """Return the cases that were known from the start, and those of the first look, whose times hold no other
    library's kernels."""
    first = published_cases("tilewise.benchmarks.model.judge.first_look")
    return [*published_cases(), *(case for case in first if not case.more)]


def _fits(row: Timed) -> bool:
    """Return whether a row may determine figures: not one that is only shown beside another, nor a micro-benchmark,
    whose rates stand in the table of parts as they are."""
    return not row.case.beside and not row.case.micro


def _fit(names: Sequence[str], changes: Any) -> dict[str, Any]:
    table = {**FIGURES, **REPEAT_CYCLES}
    return {
        name: {"shipped": table[name].value, "fitted": round(figure.value, 6)}
        for name, figure in changed(names, changes).items()
    }


def _row(row: Timed, us: float, ends: tuple[float, float]) -> _Row:
    case = row.case
    found: _Row = {
        "id": case.id,
        "kernel": case.family,
        "part": case.part,
        "l2": str(case.l2),
        "config": "best of " + str(len(row.programs)) if row.best else dict(case.rows[row.index].config),
        "published_us": row.us,
        "left_out_us": round(us, 3),
        "low_us": round(ends[0], 3),
        "high_us": round(ends[1], 3),
        "ln_error": round(math.log(us / row.us), 4),
    }
    if case.micro:
        found["micro"] = True
    if case.beside:
        found["beside"] = case.beside
    return found


def _add_ratios(rows: Sequence[_Row]) -> None:
    """Add the ratios to the fastest config of the case, both ways, where a case has several timed configs."""
    for group in _grouped(rows, "id").values():
        if len(group) > 1:
            for way in ("published", "left_out"):
                best = min(row[f"{way}_us"] for row in group)
                for row in group:
                    row[f"{way}_ratio"] = round(row[f"{way}_us"] / best, 4)


def _grouped(rows: Iterable[_Row], key: str) -> dict[str, list[_Row]]:
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def _summary(rows: Sequence[_Row]) -> dict[str, Any]:
    shown = [row for row in rows if "beside" not in row]
    vector = [row for row in shown if "micro" not in row]
    micro = [row for row in shown if "micro" in row]
    by_kernel = {
        name: statistics.fmean(abs(row["ln_error"]) for row in group)
        for name, group in _grouped(vector, "kernel").items()
    }
    worst = max(by_kernel, key=lambda name: by_kernel[name])
    cases = {name: group for name, group in _grouped(vector, "id").items() if len(group) > 1}
    ratios = [
        abs(row["left_out_ratio"] / row["published_ratio"] - 1)
        for group in cases.values()
        for row in group
        if not row["left_out_ratio"] == row["published_ratio"] == 1
    ]
    regrets = {name: _regret(group) for name, group in cases.items()}
    widths = [row["high_us"] / row["low_us"] for row in shown]
    return {
        "timings": len(vector),
        "kernels": len(by_kernel),
        "mean_ln_error": round(statistics.fmean(abs(row["ln_error"]) for row in vector), 4),
        "mean_ln_error_of_kernels": round(statistics.fmean(by_kernel.values()), 4),
        "worst_kernel": worst,
        "worst_kernel_ln_error": round(by_kernel[worst], 4),
        "largest_ln_error": max((row["ln_error"] for row in vector), key=abs),
        "ratios": len(ratios),
        "mean_ratio_error": round(statistics.fmean(ratios), 4),
        "largest_ratio_error": round(max(ratios), 4),
        "pick_regret": {name: round(value, 4) for name, value in regrets.items()},
        "mean_pick_regret": round(statistics.fmean(regrets.values()), 4),
        "worst_pick_regret": round(max(regrets.values()), 4),
        "inside_interval": round(statistics.fmean(_inside(row) for row in shown), 4),
        "median_interval_factor": round(statistics.median(widths), 3),
        "micro_timings": len(micro),
        "micro_within_15_percent": sum(abs(row["left_out_us"] / row["published_us"] - 1) <= 0.15 for row in micro),
        "by_kernel": {name: round(value, 4) for name, value in sorted(by_kernel.items(), key=lambda item: -item[1])},
    }


def _inside(row: _Row) -> bool:
    return bool(row["low_us"] <= row["published_us"] <= row["high_us"])


def _regret(group: Sequence[_Row]) -> float:
    """Return how much slower than the best the model's pick was published to be."""
    pick = min(group, key=lambda row: row["left_out_us"])
    return float(pick["published_us"] / min(row["published_us"] for row in group) - 1)
