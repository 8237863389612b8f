"""`tilewise bench model --look`: a list of published timings that entered no fit when it was made, against the shipped
clock."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.model.judge.cases import Case, published_cases
from tilewise.benchmarks.model.judge.programs import record
from tilewise.db.records import Config
from tilewise.errors import TilewiseError
from tilewise.tuner.devices.ascend_model.clock.machine import KernelTime
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.hardware.ascend_costs import INTERVAL, costs

__all__ = ["LOOKS", "look", "summary"]

LOOKS = ("first", "second", "third")
"""The lists, each in a package of its name, in the order in which they were made."""

_SHORT_US = 10.0
"""Published times below this are mostly those of a launch."""


def look(which: str, folder: Path, *, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Time every case of one of `LOOKS` once. Those that the model can't time, or whose published time holds kernels of
    PyTorch too, are apart from the others."""
    rows: list[dict[str, Any]] = []
    partly: list[dict[str, Any]] = []
    untimed: list[dict[str, Any]] = []
    for case in published_cases(f"tilewise.benchmarks.model.judge.{which}_look"):
        progress(case.id)
        times, refused = _times(case, folder)
        if not times:
            untimed.append({"id": case.id, "published_us": case.best_us, "reasons": sorted(set(refused))})
        elif case.more:
            partly.append({**_row(case, times, refused), "more": case.more})
        else:
            rows.append(_row(case, times, refused))
    return {"rows": rows, "partly": partly, "untimed": untimed, "summary": summary(rows)}


def _times(case: Case, folder: Path) -> tuple[list[tuple[Config, KernelTime]], list[str]]:
    """Return the times of the configs that have one, and the reasons of the others."""
    times: list[tuple[Config, KernelTime]] = []
    refused: list[str] = []
    for row in case.rows:
        try:
            program = record(case, row.config, folder)
            if program.refusal:
                refused.append(program.refusal)
            else:
                times.append((row.config, program.time(costs())))
        except (TilewiseError, UnknownOperation) as error:
            refused.append(str(error))
    return times, refused


def _row(case: Case, times: Sequence[tuple[Config, KernelTime]], refused: Sequence[str]) -> dict[str, Any]:
    config, best = min(times, key=lambda each: each[1].time_us)
    published = case.best_us or math.nan
    low, high = INTERVAL
    return {
        "id": case.id,
        "configs": len(case.rows),
        "refused": sorted(set(refused)),
        "config": dict(config),
        "published_us": published,
        "modelled_us": round(best.time_us, 3),
        "low_us": round(best.time_us * low, 3),
        "high_us": round(best.time_us * high, 3),
        "ln_error": round(math.log(best.time_us / published), 4),
        "busy": {pipe: round(busy / best.time_us, 3) for pipe, busy in best.pipes_us.items()},
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the errors |ln(modelled / published)| of all rows, of those under 10 us, and of the rest."""
    short = [row for row in rows if row["published_us"] < _SHORT_US]
    rest = [row for row in rows if row["published_us"] >= _SHORT_US]
    return {name: _errors(found) for name, found in (("all", rows), ("short", short), ("rest", rest)) if found}


def _errors(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    errors = [row["ln_error"] for row in rows]
    worst = max(rows, key=lambda row: abs(row["ln_error"]))
    return {
        "timings": len(rows),
        "mean_ln_error": round(statistics.fmean(map(abs, errors)), 4),
        "mean_signed": round(statistics.fmean(errors), 4),
        "worst": worst["id"],
        "worst_ln_error": worst["ln_error"],
        "inside": sum(row["low_us"] <= row["published_us"] <= row["high_us"] for row in rows),
        "too_slow": sum(error > 0 for error in errors),
    }
