"""`python -m tilewise.benchmarks.search.search_table FILE`: a result of `tilewise bench search` as Markdown tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.tables import markdown

__all__ = ["by_landscape", "endings", "reached", "summary"]


def summary(body: Mapping[str, Any]) -> str:
    """Return the means over the landscapes, one row per search, the best in the last column first."""
    columns = list(next(iter(body["mean"].values()))["fraction"])
    rows = sorted(body["mean"].items(), key=lambda item: -item[1]["fraction"][columns[-1]])
    heading = ["search", *(f"at {n}" for n in columns), "score", "score over time", "ms per evaluation"]
    return markdown(heading, ([name, *_mean_cells(mean, columns)] for name, mean in rows))


def by_landscape(body: Mapping[str, Any], margin: str) -> str:
    """Return the evaluations to come within a margin, median / 95th percentile over seeds, one row per landscape."""
    names = list(body["mean"])
    heading = ["landscape", "configs", *names]
    rows = (
        [row["file"].split(".")[0], str(row["configs"]), *(reached(row["searches"][name], margin) for name in names)]
        for row in body["landscapes"]
    )
    return markdown(heading, rows)


def endings(body: Mapping[str, Any]) -> str:
    """Return the results of `endings`, one row per landscape: tunings near the best at each budget, trials, and the
    worst gain that was left."""
    budgets = list(body["budgets"])
    heading = ["landscape", *(f"{what} {n}" for n in budgets for what in ("near the best at", "trials of", "worst at"))]
    rows = [
        [
            row["file"].split(".")[0],
            *(cell for n in budgets for cell in _ending(body["budgets"][n]["landscapes"][index])),
        ]
        for index, row in enumerate(body["budgets"][budgets[0]]["landscapes"])
    ]
    rows.append(["all", *(cell for n in budgets for cell in _ending(body["budgets"][n]["all"]))])
    return markdown(heading, rows)


def _ending(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"{row['near']} of {row['tunings']}", f"{row['trials']:.0f}", f"{row['left_worst']:.1%}"


def _mean_cells(mean: Mapping[str, Any], columns: list[str]) -> Iterator[str]:
    widths = mean.get("fraction_ci95", {})
    for n in columns:
        yield f"{mean['fraction'][n]:.3f}" + (f" ± {widths[n]:.3f}" if n in widths else "")
    yield f"{mean['score']:.3f}"
    yield f"{mean['score_over_time']:.3f}" if "score_over_time" in mean else "-"
    yield f"{1e3 * mean['seconds_per_evaluation']:.1f}" if "seconds_per_evaluation" in mean else "-"


def reached(search: Mapping[str, Any], margin: str) -> str:
    """Return one search's evaluations to come within a margin, median / 95th percentile over seeds."""
    median = search["evaluations_to"].get(margin)
    if median is None:
        return "-"
    if "evaluations_to_p95" not in search:
        return f"{median:g}"
    worst = search["evaluations_to_p95"].get(margin)
    return f"{median:g} / {'-' if worst is None else f'{worst:g}'}"


if __name__ == "__main__":
    read = json.loads(Path(sys.argv[1]).read_text())
    print(summary(read))
    for wanted in sys.argv[2:]:
        print(f"\n{wanted}\n\n{by_landscape(read, wanted)}")
