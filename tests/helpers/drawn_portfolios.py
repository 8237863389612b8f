"""A table of the portfolios of drawn trials: which configs they hold, by which rule, and what they expect elsewhere.

If a change of the table is meant, write it anew with `python tests/helpers/drawn_portfolios.py`, in the tests'
environment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import bowl
from tables import FOLDER

from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.portfolio.build import portfolios

CASES = 16

_FILE = FOLDER / "portfolios.json"
_SIZES = (4, 8, 20, 33, 64, 100, 300, 1000, 5000)


def now() -> list[list[dict[str, Any]]]:
    """Return of each case its portfolios, and what they launch at two shapes."""
    return [_portfolios(*case) for case in _drawn()]


def before() -> list[list[dict[str, Any]]]:
    made: list[list[dict[str, Any]]] = json.loads(_FILE.read_text())
    return made


def _drawn() -> Iterator[tuple[list[tuple[Scope, list[Trial]]], KernelSpec | None]]:
    random = Random("portfolios")
    for number in range(CASES):
        evidence = []
        for m in random.sample(_SIZES, random.choice((1, 4, 7, 9))):
            clock = Clock.MEASURED if random.random() < 0.85 else Clock.MODELLED
            dtype = "float32" if random.random() < 0.9 else "float16"
            scope = Scope(Problem("bowl", {"M": m}, dtype), "a1", "Bowl", clock, "formula 1", 8)
            evidence.append((scope, [_trial(random, m) for _ in range(random.choice((4, 12, 25)))]))
        yield evidence, bowl.SPEC if number % 3 else None


def _trial(random: Random, m: int) -> Trial:
    """Draw a trial; large tiles suit large shapes."""
    config = {
        "TILE": random.choice((1, 2, 3, 4, 6, 10)),
        "WIDTH": random.choice((8, 32, 64, 128)),
        "fast": random.random() < 0.7,
    }
    away = abs(config["TILE"] - 1 - math.log2(m) / 2) + abs(math.log2(config["WIDTH"]) - 6) + (not config["fast"])
    created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=random.randrange(1000))
    if random.random() < 0.1:
        return Trial(config, Status.RUNTIME, created=created)
    time_us = round(10 + 3 * away + random.random(), 3)
    return Trial(config, Status.CORRECT, time_us=time_us, samples=3, verified=random.random() < 0.6, created=created)


def _portfolios(evidence: list[tuple[Scope, list[Trial]]], spec: KernelSpec | None) -> list[dict[str, Any]]:
    made = []
    for portfolio in portfolios(evidence, spec):
        body = portfolio.to_json()
        if spec is not None:
            body["picks"] = [portfolio.picks(spec, {"M": m}, bowl.TARGET)[:4] for m in (50, 2000)]
            forecast = portfolio.forecast(spec, bowl.TARGET)
            wanted = [bowl.DEFAULT, bowl.BEST, {"TILE": 10, "WIDTH": 8, "fast": False}]
            body["expected"] = [[round(cost, 3) for cost in forecast.costs({"M": m}, wanted)] for m in (7, 64, 900)]
        made.append(body)
    return json.loads(json.dumps(made))  # tuples become lists


def write() -> None:
    _FILE.write_text(json.dumps(now()) + "\n")


if __name__ == "__main__":
    write()
