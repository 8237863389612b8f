"""docs/runtime.md shows the figures of the recorded results. Run as a script, this file updates the tables."""

from __future__ import annotations

import json

import pytest
from places import DOCS

from tilewise.benchmarks.common.tables import markdown, placed
from tilewise.tuner.portfolio.portfolio import portfolio_from_json

PAGE = DOCS / "runtime.md"
RESULTS = PAGE.parent / "results"

COSTS = (
    "shapes in the cache",
    "with constants",
    "`tuned`",
    "`triton.autotune`, warm",
    "`libtuner`, warm",
    "`tuned` adds",
    "loading the file",
    "first call of a shape",
)
SHAPES = (
    "kernel",
    "calls, right",
    "how they were chosen",
    "judged",
    "launched with",
    "tuned after all",
    "the spec's default",
)
PORTFOLIOS = ("kernel", "configs", "a shape left out: forecast's pick of those timed there", "the same, by the tree")


def recorded(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def costs(name):
    for row in recorded(name)["rows"]:
        yield (
            f"{row['entries']:,}",
            *(
                f"{row[one]['median_us']:.2f}, {row[one]['p99_us']:.2f}" if one in row else "not run"
                for one in ("constants", "tilewise", "triton.autotune", "flag_gems.libtuner")
            ),
            f"{row['tilewise']['added_median_us']:.2f}",
            f"{row['load']['seconds']:.3f} s, {row['load']['mb']:.1f} MB",
            f"{row['first_call_us']['exact_median']:.0f}",
        )


def left_out(held):
    unknown = f"{held['unknown']} of {held['shapes'] + held['unknown']}"
    return f"{held['mean']:.3f} (worst {held['worst']:.2f}, unknown {unknown})"


def portfolios():
    made = [(body["kernel"], len(body["configs"]), body) for body in recorded("portfolio-h200")["portfolios"]]
    others = [(row["kernel"], row["portfolio"]) for row in recorded("shapes-h200-others")["kernels"]]
    for kernel, configs, body in [*made, *((name, body["configs"], body) for name, body in others)]:
        held = (left_out(body[which]) for which in ("held_out", "rule_held_out"))
        yield f"`{kernel}`", str(configs), *held


def shapes(name):
    for kernel in recorded(name)["kernels"]:
        calls, held = kernel["calls"], kernel["held_out"]
        matches = ", ".join(f"{count} {match}" for match, count in sorted(calls["matches"].items()))
        costs = (f"{held[who]['mean']:.3f} (worst {held[who]['worst']:.2f})" for who in ("chosen", "tuned", "default"))
        right = f"{calls['calls']}, {calls['calls'] - len(calls['wrong'])}"
        yield f"`{kernel['kernel']}`", right, matches, str(held["shapes"]), *costs


def tables():
    return {
        "runtime-h200": markdown(COSTS, costs("runtime-h200")),
        "runtime-h200-flaggems": markdown(COSTS, costs("runtime-h200-flaggems")),
        "shapes-h200": markdown(SHAPES, shapes("shapes-h200")),
        "shapes-h200-others": markdown(SHAPES, shapes("shapes-h200-others")),
        "portfolio-h200": markdown(PORTFOLIOS, portfolios()),
    }


@pytest.mark.parametrize("name", tables())
def test_the_tables_are_those_of_the_recorded_results(name):
    page = PAGE.read_text()
    assert placed(page, {name: tables()[name]}) == page


def test_the_recorded_portfolios_are_of_the_present_version():
    assert len([portfolio_from_json(body) for body in recorded("portfolio-h200")["portfolios"]]) == 3


if __name__ == "__main__":
    PAGE.write_text(placed(PAGE.read_text(), tables()))
