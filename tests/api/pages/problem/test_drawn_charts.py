"""Rooflines and the importance of parameters of trials drawn at random, number by number."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from random import Random
from typing import Any

import pytest
from landscapes import landscape_of
from places import ROOT

from tilewise.api.pages.problem.importance import importances
from tilewise.api.pages.problem.roofline import Mark, Roofline
from tilewise.api.pages.problem.roofline_chart import chart
from tilewise.db.records import Status, Trial

CASES = 12
TABLE = ROOT / "tests/golden/charts.json"
"""`WRITE_CHARTS=1 pytest` on this file writes it anew, if a change is meant."""


def drawn_chart(random: Random) -> Any:
    """Return the drawing of rates below memory's and a peak, some of which are unknown."""
    intensity, gb_s = 10 ** random.uniform(-1, 3), random.uniform(5, 900)
    roofs = {"global memory": 800.0, "L2 cache": random.choice((2000.0, 5500.0))}
    shown = Roofline(
        intensity=intensity,
        gb_s=gb_s,
        gflop_s=gb_s * intensity,
        default_gb_s=random.choice((None, gb_s / 3)),
        roofs=dict(list(roofs.items())[: random.choice((1, 2))]),
        peak_gflop_s=random.choice((None, 2e3, 3.5e5)),
        peak_of="float16 on matrix units",
        bound=None,
        time_us=10.0,
        marks=[
            Mark(gb_s * intensity * random.uniform(0.1, 1), random.randint(1, 40)) for _ in range(random.randint(0, 4))
        ],
    )
    made = chart(shown)
    return {**asdict(made), "paths": [roof.path for roof in made.roofs]}


def drawn_importance(random: Random) -> Any:
    """Return the figures of the parameters of some trials, some of which failed or lack a parameter."""
    trials = []
    for _ in range(random.choice((5, 14, 40))):
        config = {"A": random.choice((8, 16, 32)), "B": random.choice(("x", "y")), "C": random.random() < 0.5}
        if random.random() < 0.1:
            del config["C"]
        time_us = None if random.random() < 0.15 else round(config["A"] * random.uniform(1.0, 1.5), 2)
        status = Status.COMPILE if time_us is None else Status.CORRECT
        trials.append(Trial(config=config, status=status, time_us=time_us))
    shown = landscape_of(trials)
    ran = [number for number, _ in shown.timed()]
    winner = min(ran, key=lambda number: shown.times_us[number]) if ran and random.random() < 0.8 else None
    return [asdict(each) for each in importances(shown, winner)]


@pytest.fixture(scope="module")
def now() -> Any:
    random = Random("charts")
    made = [[drawn_chart(random), drawn_importance(random)] for _ in range(CASES)]
    found = json.loads(json.dumps(rounded(made)))
    if os.environ.get("WRITE_CHARTS"):
        TABLE.write_text(json.dumps(found) + "\n")
    return found


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


@pytest.mark.parametrize("case", range(CASES))
def test_drawn_charts_and_figures_are_those_of_the_table(now, case):
    assert now[case] == json.loads(TABLE.read_text())[case]


@pytest.mark.parametrize("changes", [{"roofs": {}}, {"gflop_s": 0.0}])
def test_without_bounds_or_arithmetic_there_is_no_chart(changes):
    given = {"intensity": 1.0, "gb_s": 5.0, "gflop_s": 5.0, "default_gb_s": None, "roofs": {"memory": 800.0}}
    rest = {"peak_gflop_s": None, "peak_of": "", "bound": None, "time_us": 1.0, "marks": []}
    assert chart(Roofline(**{**given, **rest})) is not None
    assert chart(Roofline(**{**given, **rest, **changes})) is None
