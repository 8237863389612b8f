"""docs/results/model-execution.md and model-mutations.md, from the JSON of `tilewise bench execute` and `mutations`.

`python -m tilewise.benchmarks.model.execution_report docs` writes both; a test checks that they are up to date.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.tables import markdown

__all__ = ["execution_page", "mutations_page"]

_EXECUTION = """# Execution of compiled programs

{date}. Random configs of the 18 kernels of that day at dims with tails, compiled for {part} and **executed** on the
modelled core (no device): {toolchain}, Python {python}, seed {seed}. Raw figures:
[model-execution.json](model-execution.json).

```
tilewise bench execute --count {count} -o docs/results/model-execution.json
python -m tilewise.benchmarks.model.execution_report docs
```

`float64`: configs that agree with the float64 reference at the tolerance of real devices, without an access out of
bounds, a race or a stray flag. `Triton`: how many of these also agree with Triton's own interpreter, at the same
tolerance. `error`: the largest deviation from float64, in units of the tolerance. `noted`: configs in which only the
order of a pipe separates two operations. Times are those of this host.

{rows}

{summary}

{faults}

Verifying the headline config ({headline_config}) at {headline_dims}, {headline_dtype}, as in tuning but compiled
before, takes {first_s} s the first time in a process and {again_s} s the second time.
"""

_MUTATIONS = """# Faults in compiled programs

{date}. Compiled programs of the 18 kernels of that day for {part}, each changed in one random place and **executed** on
the modelled core (no device): {toolchain}, Python {python}, seed {seed}. Raw figures:
[model-mutations.json](model-mutations.json).

```
tilewise bench mutations --count {count} -o docs/results/model-mutations.json
python -m tilewise.benchmarks.model.execution_report docs
```

A change counts if it changes the outputs (bit by bit, executed without checks) or leaves accesses to the same bytes
unordered (found by brute force). "Reported" means that the verification used in tuning refuses the config. "Noted"
means that only the order of one pipe still separates two long operations, which is not refused.

{rows}

{reports}

Of {changes} changes, {counting} changed the result or the order, and {reported} of these were reported ({share:.1%}).
{harmless} others were reported although they changed neither: in these a flag is set and no longer waited for.
"""


def execution_page(body: Mapping[str, Any]) -> str:
    """Return the page of a recorded `tilewise bench execute`."""
    rows, counts = [], Counter(row["kernel"] for row in body["rows"])
    for name in counts:
        mine = [row for row in body["rows"] if row["kernel"] == name]
        dtypes = ", ".join(dict.fromkeys(row["dtype"] for row in mine))
        right = [row for row in mine if row["verdict"]["agreed"]]
        compared = [row for row in right if row["interpreted"]]
        same = sum(row["interpreted"]["agreed"] for row in compared)
        error = max((row["verdict"]["error"] / row["verdict"]["tolerance"] for row in right), default=0.0)
        noted = sum(row["unbarriered"] > 0 for row in mine)
        longest = max(row["seconds"] for row in mine) * 1e3
        shares = [f"{len(right)} of {len(mine)}", f"{same} of {len(compared)}"]
        rows.append(
            [f"`{name}`", _sizes(mine[0]["dims"]), dtypes, *shares, f"{error:.2f}", str(noted), f"{longest:.0f}"]
        )
    headings = ["kernel", "dims", "dtypes", "float64", "Triton", "error", "noted", "longest, ms"]
    summary = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in body["summary"].items())
    return _EXECUTION.format(
        **_header(body),
        count=max(counts.values()),
        rows=markdown(headings, rows),
        summary=f"Total: {summary}.",
        faults=_faults(body["rows"]),
        headline_config=", ".join(f"{name}={value}" for name, value in body["headline"]["config"].items()),
        headline_dims=_sizes(body["headline"]["dims"]),
        headline_dtype=body["headline"]["dtype"],
        first_s=body["headline"]["first_s"],
        again_s=body["headline"]["again_s"],
    )


def _faults(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for row in rows:
        for verdict in (row["verdict"], row["interpreted"]):
            if verdict and not verdict["agreed"]:
                config = ", ".join(f"{name}={value}" for name, value in row["config"].items())
                lines.append(f"- `{row['kernel']}` {row['dtype']} ({config}): {verdict['reason']}")
    return (
        "\n".join(["Wrong as compiled:", "", *lines])
        if lines
        else (
            "All that were drawn are correct as compiled, at one problem a kernel. The executor was mended until such "
            "configs agreed."
        )
    )


def mutations_page(body: Mapping[str, Any]) -> str:
    """Return the page of a recorded `tilewise bench mutations`."""
    changes, summary = body["changes"], body["summary"]
    rows = []
    for kind in dict.fromkeys(change["kind"] for change in changes):
        mine = [change for change in changes if change["kind"] == kind]
        counting = [change for change in mine if change["counts"]]
        reported = sum(bool(change["report"]) and change["reported_as"] != "noted" for change in counting)
        values = sum(change["result_changed"] for change in mine)
        order = sum(change["order_changed"] for change in mine)
        rows.append([kind, *map(str, (len(mine), values, order, len(counting), reported))])
    reports = Counter(change["reported_as"] for change in changes if change["counts"])
    missed = [f"- {c['kernel']}: {c['change']} ({c['kind']})" for c in changes if c["counts"] and not c["report"]]
    words = "Reported as: " + ", ".join(f"{kind} {count}" for kind, count in reports.most_common()) + "."
    return _MUTATIONS.format(
        **_header(body),
        count=summary["changes"],
        rows=markdown(["change", "made", "result changed", "order changed", "either", "reported"], rows),
        reports="\n".join([words, *(["", "Not reported:", "", *missed] if missed else [])]),
        changes=summary["changes"],
        counting=summary["change_result_or_order"],
        reported=summary["of_these_reported"],
        share=summary["of_these_reported"] / max(1, summary["change_result_or_order"]),
        harmless=summary["reported_although_nothing_changed"],
    )


def _header(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in ("date", "part", "toolchain", "python", "seed")}


def _sizes(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in dims.items())


if __name__ == "__main__":
    results = Path(sys.argv[1]) / "results"
    for name, page in (("model-execution", execution_page), ("model-mutations", mutations_page)):
        (results / f"{name}.md").write_text(page(json.loads((results / f"{name}.json").read_text())))
