"""docs/results/model-published.md, from the JSON of `tilewise bench model`, and the tables of figures in docs/model.md.

`python -m tilewise.benchmarks.model.model_report docs` writes both; a test checks that they are up to date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.tables import markdown, placed
from tilewise.tuner.hardware.ascend_costs import FIGURES, INTERVAL, REPEAT_CYCLES
from tilewise.tuner.hardware.ascend_parts import PARTS, Part
from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES
from tilewise.tuner.hardware.figure import Figure

__all__ = ["filled", "results_page"]

_PAGE = """# The modelled clock against published timings

{date}. Published times were **measured** by others on real parts; the other times are **modelled**. Raw figures:
[model-published.json](model-published.json).

```
tilewise bench model --json > docs/results/model-published.json
python -m tilewise.benchmarks.model.model_report docs
```

No device; {toolchain}, Python {python}. The sources of the timings are in
[published.json](../../benchmarks/model/judge/published.json).

## How it was judged

Every kernel was timed with figures fitted to the timings of **all other kernels**. Each fit starts from the middles of
the figures' ranges, never from the shipped values, which saw all timings. The parts' rates of memory and L2 are not
fitted: some come from published timings of these very kernels, and are not left out. A kernel's error is the mean of
|ln(modelled / published)| over its timings. Rows that publish only the fastest of several configs compare it with the
modelled minimum, and count in neither ratios nor picks. Micro-benchmarks decided no fit; those of the vendor are the
source of some rates in the table of parts.

Not blind: the timings were known while the structure of the model and the ranges of its figures were chosen.

| | | target |
|---|---|---|
{headline}

Feasibility disagreements: {disagreements}.

{kernels}

## The four configs of the headline problem

From a program with the published one's loads, masks, operations and tiling, and from ours (`row_reduce`), which does
less work for the same result. The second row is timed as the compiler used here makes it: it finds no room for hoisted
constants and second buffers ([docs/model.md](../model.md) has the figures).

{headline_rows}

## All timings

The interval reaches from {low} to {high} times the modelled time.

{rows}

## Micro-benchmarks

Twins of the vendor's examples on an Ascend910B1, in Triton. The addition is written so that the compiler gives the sum
a buffer of its own, as the vendor's example does. In an input's buffer, which the compiler prefers, the sum makes the
next load wait for its store: the single-core row is then 53% slow.

{micro}

## Earlier versions

Their figures were fitted to rows of the kernels that they were judged by:

{earlier}
"""


def results_page(body: Mapping[str, Any], earlier: Mapping[str, Any]) -> str:
    """Return the page of a recorded `tilewise bench model --json`, beside those of earlier versions of the model."""
    shown = [row for row in body["rows"] if "beside" not in row]
    vector, micro = ([row for row in shown if ("micro" in row) is which] for which in (False, True))
    return _PAGE.format(
        date=body["date"],
        toolchain=body["toolchain"],
        python=body["python"],
        headline=_headline(body["summary"]),
        disagreements="; ".join(
            f"{found['id']} {_values(found['config'])} ({found['reason']})"
            for found in body["feasibility_disagreements"]
        ),
        low=INTERVAL[0],
        high=INTERVAL[1],
        kernels=_kernels(body["summary"]["by_kernel"]),
        headline_rows=_both_programs(body["rows"]),
        rows=_table(vector),
        micro=_table(micro),
        earlier=_earlier(earlier["runs"]),
    )


def _headline(summary: Mapping[str, Any]) -> str:
    lines = [
        (f"mean error of {summary['timings']} timings", f"{summary['mean_ln_error']:.3f}", "0.15"),
        ("worst kernel", f"{summary['worst_kernel_ln_error']:.3f} ({summary['worst_kernel']})", "0.35"),
        ("mean error of ratios within a case", f"{summary['mean_ratio_error']:.1%}", "6%"),
        ("published cost of the model's pick, mean", f"{summary['mean_pick_regret']:.1%}", "1.5%"),
        ("published cost of the model's pick, worst", f"{summary['worst_pick_regret']:.1%}", "5%"),
        ("timings and micro-benchmarks inside their interval", f"{summary['inside_interval']:.1%}", "80 to 95%"),
        ("median width of an interval", f"x{summary['median_interval_factor']:.2f}", "x1.6"),
        ("micro-benchmarks within 15%", f"{summary['micro_within_15_percent']} of {summary['micro_timings']}", "all"),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _kernels(by_kernel: Mapping[str, float]) -> str:
    return markdown(["kernel left out", "error"], [[name, f"{error:.3f}"] for name, error in by_kernel.items()])


def _both_programs(rows: Sequence[Mapping[str, Any]]) -> str:
    faithful = [row for row in rows if row["id"] == "sum_fused"]
    ours = [row for row in rows if row.get("beside") == "sum_fused"]
    headings = ["config", "published us", "modelled us", "published ratio", "modelled ratio", "ours, us", "its ratio"]
    cells = [
        [
            _values(row["config"]),
            *(f"{row[name]:.2f}" for name in ("published_us", "left_out_us", "published_ratio", "left_out_ratio")),
            *(f"{other[name]:.2f}" for name in ("left_out_us", "left_out_ratio")),
        ]
        for row, other in zip(faithful, ours, strict=True)
    ]
    return markdown(headings, cells)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    headings = ["case", "config", "L2", "published us", "modelled us", "error", "published ratio", "modelled ratio"]
    return markdown(headings, [_row(row) for row in rows])


def _row(row: Mapping[str, Any]) -> list[str]:
    times = [f"{row[name]:.2f}" for name in ("published_us", "left_out_us")]
    ratios = [f"{row[name]:.2f}" if name in row else "" for name in ("published_ratio", "left_out_ratio")]
    error = f"{row['left_out_us'] / row['published_us'] - 1:+.1%}"
    return [row["id"], _values(row["config"]), row["l2"], *times, error, *ratios]


def _values(config: Mapping[str, Any] | str) -> str:
    return config if isinstance(config, str) else ", ".join(map(str, config.values()))


def _earlier(runs: Sequence[Mapping[str, Any]]) -> str:
    headings = ["model", "commit", "mean error of the ratios", "largest", "inside the interval", "fitted rows"]
    rows = []
    for run in runs:
        found, fitted = run["summary"], sum(row["used_for_fitting"] for row in run["cases"])
        cells = [str(run["model"]), f"{run['commit']} of {run['date']}", f"{found['mean_absolute_ratio_error']:.1%}"]
        cells += [f"{found['largest_ratio_error']:+.1%}", f"{found['within_interval']} of {found['compared']}"]
        rows.append([*cells, str(fitted)])
    return markdown(headings, rows)


def filled(page: str) -> str:
    """Return docs/model.md with its tables of figures and parts up to date, each up to its `<!-- end -->`."""
    rows = [_figure(name, figure) for name, figure in FIGURES.items()]
    groups: dict[Figure, list[str]] = {}
    for name, figure in REPEAT_CYCLES.items():
        groups.setdefault(figure, []).append(name)
    rows += [_figure("` `".join(names), figure) for figure, names in groups.items()]
    figures = markdown(_FIGURE_HEADINGS, rows)
    headings = ["part", "cores", "GHz", "L2 MiB", "L2 GB/s", "read", "write", "mixed", "nominal", "source"]
    cube = markdown(_FIGURE_HEADINGS, [_figure(name, figure) for name, figure in CUBE_FIGURES.items()])
    parts = markdown(headings, [_part(part) for part in PARTS.values()])
    return placed(page, {"figures": figures, "cube": cube, "parts": parts})


_FIGURE_HEADINGS = ["figure", "value", "range", "unit", "source"]


def _figure(name: str, figure: Figure) -> list[str]:
    return [f"`{name}`", f"{figure.value:g}", f"{figure.low:g} - {figure.high:g}", figure.unit, figure.source]


def _part(part: Part) -> list[str]:
    rates = (part.l2_gb_s, part.read_gb_s, part.write_gb_s, part.mixed_gb_s, part.hbm_gb_s)
    numbers = (part.cores, part.clock_ghz, part.l2_mib, *rates)
    return [part.name, *(f"{number:g}" for number in numbers), part.source]


if __name__ == "__main__":
    docs = Path(sys.argv[1])
    results = docs / "results" / "model-published.md"
    recorded = (results.with_name(f"{results.stem}{which}.json") for which in ("", "-earlier"))
    results.write_text(results_page(*(json.loads(file.read_text()) for file in recorded)))
    model = docs / "model.md"
    model.write_text(filled(model.read_text()))
