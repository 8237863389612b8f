"""`python -m tilewise.benchmarks.search.outlook FILE...`: how often the guided search's forecasts come true.

After so many evaluations the search says how likely a config more than half a percent faster is, and how much faster it
would be. On a recorded landscape what was left is known. Over all files and seeds: of the forecasts of each fifth, how
often there was one (they are calibrated where the two agree); the Brier score, the mean squared difference, beside that
of always saying how often there was one on average; and what was expected to be gained beside what there was to gain.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.study import Study

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.common.processes import processes
from tilewise.benchmarks.common.script import script
from tilewise.benchmarks.search.search import WITHOUT_PRIOR, clocks, load_recorded, replay
from tilewise.settings import read_settings
from tilewise.tuner.samplers.guided import BETTER, GuidedSampler

__all__ = ["bench_outlook"]

MOMENTS = (20, 32, 48, 100)
"""Whole batches."""
_BINS = 5


@dataclass(frozen=True, slots=True)
class _Forecast:
    """What was said after so many evaluations, and `left`: how much faster the best is, as a share of the best time so
    far."""

    evaluations: int
    chance: float
    expected: float
    left: float


def bench_outlook(files: Sequence[str], *, seeds: int = 12, jobs: int = 1) -> dict[str, Any]:
    """The JSON of the benchmark: searches with the prior, where there is one, and without."""
    with processes(jobs) as pool:
        asked = [
            pool.submit(_listen, file, search, seed)
            for file in files
            for search in (("guided",) if load_recorded(file).prior is None else ("guided", WITHOUT_PRIOR))
            for seed in range(seeds)
        ]
        every = [forecast for listened in asked for forecast in listened.result()]
    return {
        "seeds": seeds,
        "moments": {str(n): _judged([f for f in every if f.evaluations == n]) for n in MOMENTS},
        "all": _judged(every),
    }


def _listen(file: str, search: str, seed: int) -> list[_Forecast]:
    """All that one search said."""
    recorded = load_recorded(file)
    forecasts: list[_Forecast] = []

    def heard(study: Study, numbers: Sequence[int]) -> None:
        assert isinstance(study.sampler, GuidedSampler)
        if len(numbers) not in MOMENTS or (outlook := study.sampler.outlook(study)) is None:
            return
        best = min((t for number in numbers if (t := recorded.times[number]) is not None), default=math.inf)
        forecasts.append(_Forecast(len(numbers), outlook.chance, outlook.expected, 1 - recorded.optimum / best))

    replay(recorded, search, seed, max(MOMENTS), heard=heard)
    return forecasts


def _judged(forecasts: Sequence[_Forecast]) -> dict[str, Any]:
    came = [f.left > BETTER for f in forecasts]
    share = statistics.fmean(came)
    return {
        "forecasts": len(forecasts),
        "brier": round(statistics.fmean((f.chance - true) ** 2 for f, true in zip(forecasts, came, strict=True)), 4),
        "brier_of_the_average": round(share * (1 - share), 4),
        "expected_gain": round(statistics.fmean(f.expected for f in forecasts), 4),
        "left": round(statistics.fmean(f.left for f in forecasts), 4),
        "reliability": [_bin(forecasts, place) for place in range(_BINS)],
    }


def _bin(forecasts: Sequence[_Forecast], place: int) -> dict[str, Any]:
    inside = [f for f in forecasts if min(int(f.chance * _BINS), _BINS - 1) == place]
    row: dict[str, Any] = {"from": place / _BINS, "to": (place + 1) / _BINS, "forecasts": len(inside)}
    if inside:
        row["said"] = round(statistics.fmean(f.chance for f in inside), 3)
        row["came"] = round(statistics.fmean(f.left > BETTER for f in inside), 3)
    return row


if __name__ == "__main__":
    with script():
        found = bench_outlook(sys.argv[1:], jobs=read_settings().jobs)
    names = " ".join(Path(file).name for file in sys.argv[1:])
    print(
        json.dumps(
            header(f"python -m tilewise.benchmarks.search.outlook {names}", clocks(sys.argv[1:])) | found, indent=1
        )
    )
