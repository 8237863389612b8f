"""docs/results/model-published.md, from the JSON of `tilewise bench model`, and the table of figures in docs/model.md.

`python -m tilewise.benchmarks.model.model_report docs` writes both; a test checks that they are up to date.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.tables import markdown, placed
from tilewise.tuner.hardware.ascend_costs import FIGURES, REPEAT_CYCLES, Figure

__all__ = ["filled", "results_page"]

_PAGE = """# The modelled {part} against published timings

{date}. Published times were **measured** by others on a real part; the other times are **modelled**. Raw figures:
[model-published.json](model-published.json).

```
tilewise bench model --json > docs/results/model-published.json
python -m tilewise.benchmarks.model.model_report docs
```

No device; {toolchain}, Python {python}. Source of the published figures: {source}.

## What these timings decided

No row is a blind test. The published timings were known before the model was finished: {fitted} rows determined figures
of [ascend_costs.py](../../tuner/hardware/ascend_costs.py), which name them, and the model's structure and the ranges of
its figures changed after the first comparison ([earlier runs](model-published-earlier.json)):

{earlier}

With version 6, two rows moved from those that judge to the fitted ones. Of the {judged} rows that fit no figure now,
{own} is the fastest of its case in both, so that its ratio is 1 by construction. A model that predicts the same time
for all configs of a case would be better for {better} others and as good for {equal}.

## A whole kernel left out

The figures that a case's timings helped to determine are put at the middle of their ranges, and the case is predicted
with those. Nothing is fitted again. The ranges themselves were not chosen without these timings, so this is the
kindest form of leaving a kernel out. Configs that are the fastest of their case in both are not counted.

{left_out}

The mean over the {kernels} kernels is {left_out_mean:.1%}, the largest error {left_out_largest:.1%}. "All alike" is
the error of predicting the same time for all configs of a case.

## All rows

The interval is the modelled time with all costs at the low and at the high ends of their ranges. Ratios are to the
fastest config of the case.

{rows}

| | compared | mean error of the ratios | largest | mean error of the times | inside the interval |
|---|---|---|---|---|---|
{errors}

Published time of the model's best config over the best published time of the case: {picks}. Feasibility disagreements:
{disagreements} (each compiler refuses one config that the other accepts).
"""


def results_page(body: Mapping[str, Any], earlier: Mapping[str, Any]) -> str:
    """Return the page of a recorded `tilewise bench model --json`, beside those of earlier versions of the model."""
    summary = body["summary"]
    headings = ["case", "config", "published us", "modelled us", "interval"]
    headings += ["published ratio", "modelled ratio", "ratio error", ""]
    picks = ", ".join(f"{case} {cost:.2f}" for case, cost in summary["cost_of_trusting_the_pick"].items())
    errors = {"all": summary, "not fitted": summary["judged"]}
    left_out = summary["left_out"]
    return _PAGE.format(
        part=body["part"],
        date=body["date"],
        toolchain=body["toolchain"],
        python=body["python"],
        source=body["source"],
        fitted=sum(row["used_for_fitting"] for row in body["cases"]),
        judged=summary["judged"]["compared"],
        own=summary["judged"]["own_denominator"],
        better=summary["judged"]["one_is_better"],
        equal=summary["judged"]["one_is_as_good"],
        earlier=_earlier(earlier["runs"]),
        left_out=_left_out(left_out),
        kernels=len(left_out),
        left_out_mean=statistics.fmean(case["mean_absolute_ratio_error"] for case in left_out.values()),
        left_out_largest=max(case["largest_absolute_ratio_error"] for case in left_out.values()),
        rows=markdown(headings, [_row(row) for row in body["cases"]]),
        errors="\n".join(_errors(name, found) for name, found in errors.items()),
        picks=picks,
        disagreements=summary["feasibility_disagreements"],
    )


def _earlier(runs: Sequence[Mapping[str, Any]]) -> str:
    headings = ["model", "commit", "mean error of the ratios", "largest", "inside the interval", "fitted rows"]
    rows = []
    for run in runs:
        found, fitted = run["summary"], sum(row["used_for_fitting"] for row in run["cases"])
        cells = [str(run["model"]), f"{run['commit']} of {run['date']}", f"{found['mean_absolute_ratio_error']:.1%}"]
        cells += [f"{found['largest_ratio_error']:+.1%}", f"{found['within_interval']} of {found['compared']}"]
        rows.append([*cells, str(fitted)])
    return markdown(headings, rows)


def _left_out(cases: Mapping[str, Mapping[str, Any]]) -> str:
    headings = ["kernel left out", "its figures", "compared", "mean error of the ratios", "largest", "all alike"]
    headings += ["mean error of the times", "cost of the pick"]
    rows = []
    for name, found in cases.items():
        figures = ", ".join(f"`{figure}`" for figure in found["figures"]) or "none"
        shares = ("mean_absolute_ratio_error", "largest_absolute_ratio_error", "mean_absolute_ratio_error_of_one")
        cells = [name, figures, str(found["compared"]), *(f"{found[share]:.1%}" for share in shares)]
        cells += [f"{found['mean_absolute_time_error']:.1%}", f"{found['cost_of_trusting_the_pick']:.2f}"]
        rows.append(cells)
    return markdown(headings, rows)


def _row(row: Mapping[str, Any]) -> list[str]:
    config = ", ".join(str(value) for value in row["config"].values())
    published = f"{row['published_us']:.2f}" if "published_us" in row else "overflow"
    if "modelled_us" not in row:
        return [row["id"], config, published, "refused", "", "", "", "", ""]
    times = [published, f"{row['modelled_us']:.2f}", f"{row['low_us']:.1f} - {row['high_us']:.1f}"]
    if "published_ratio" not in row:
        return [row["id"], config, *times, "", "", "", ""]
    error = row["modelled_ratio"] / row["published_ratio"] - 1
    ratios = [f"{row['published_ratio']:.2f}", f"{row['modelled_ratio']:.2f}", f"{error:+.1%}"]
    return [row["id"], config, *times, *ratios, "fitted" if row["used_for_fitting"] else ""]


def _errors(name: str, found: Mapping[str, Any]) -> str:
    cells = [name, str(found["compared"]), f"{found['mean_absolute_ratio_error']:.1%}"]
    cells += [f"{found['largest_ratio_error']:+.1%}", f"{found['mean_absolute_time_error']:.1%}"]
    return f"| {' | '.join(cells)} | {found['within_interval']} |"


def filled(page: str) -> str:
    """Return docs/model.md with its table of figures up to date, between `<!-- figures -->` and `<!-- end -->`."""
    rows = [_figure(name, figure) for name, figure in FIGURES.items()]
    groups: dict[Figure, list[str]] = {}
    for name, figure in REPEAT_CYCLES.items():
        groups.setdefault(figure, []).append(name)
    rows += [_figure("` `".join(names), figure) for figure, names in groups.items()]
    return placed(page, {"figures": markdown(["figure", "value", "range", "unit", "source"], rows)})


def _figure(name: str, figure: Figure) -> list[str]:
    return [f"`{name}`", f"{figure.value:g}", f"{figure.low:g} - {figure.high:g}", figure.unit, figure.source]


if __name__ == "__main__":
    docs = Path(sys.argv[1])
    results = docs / "results" / "model-published.md"
    recorded = (results.with_name(f"{results.stem}{which}.json") for which in ("", "-earlier"))
    results.write_text(results_page(*(json.loads(file.read_text()) for file in recorded)))
    model = docs / "model.md"
    model.write_text(filled(model.read_text()))
