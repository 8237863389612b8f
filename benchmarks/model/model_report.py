"""docs/results/model-published.md, from the JSON of `tilewise bench model`, and the table of figures in docs/model.md.

`python -m tilewise.benchmarks.model.model_report docs` writes both; a test checks that they are up to date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
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

The interval is the modelled time with all costs at the low and at the high ends of their ranges. Ratios are to the
fastest config of the case. Rows marked "fitted" were used to fit figures of
[ascend_costs.py](../../tuner/hardware/ascend_costs.py), which name them; the other rows test the model.

{rows}

| | compared | mean error of the ratios | largest | mean error of the times | inside the interval |
|---|---|---|---|---|---|
{errors}

Published time of the model's best config over the best published time of the case: {picks}. Feasibility disagreements:
{disagreements} (each compiler refuses one config that the other accepts).
"""


def results_page(body: Mapping[str, Any]) -> str:
    """Return the page of a recorded `tilewise bench model --json`."""
    summary = body["summary"]
    headings = ["case", "config", "published us", "modelled us", "interval"]
    headings += ["published ratio", "modelled ratio", "ratio error", ""]
    picks = ", ".join(f"{case} {cost:.2f}" for case, cost in summary["cost_of_trusting_the_pick"].items())
    errors = {"all": summary, "not fitted": summary["judged"]}
    return _PAGE.format(
        part=body["part"],
        date=body["date"],
        toolchain=body["toolchain"],
        python=body["python"],
        source=body["source"],
        rows=markdown(headings, [_row(row) for row in body["cases"]]),
        errors="\n".join(_errors(name, found) for name, found in errors.items()),
        picks=picks,
        disagreements=summary["feasibility_disagreements"],
    )


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
    results = docs / "results" / "model-published.json"
    results.with_suffix(".md").write_text(results_page(json.loads(results.read_text())))
    model = docs / "model.md"
    model.write_text(filled(model.read_text()))
