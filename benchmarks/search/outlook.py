"""`python -m tilewise.benchmarks.search.outlook FILE...`: the calibration of the guided search's forecasts.

After a number of evaluations the search predicts the chance of a config more than half a percent faster, and the
expected gain. On a recorded landscape both are known. The benchmark reports, over all files and seeds:

- for forecasts in each fifth of the range, the share that came true (calibrated forecasts agree with it);
- the Brier score, the mean squared difference, and that of always predicting the average share;
- the expected gain, and the gain that was left.
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
from tilewise.errors import UsageError
from tilewise.settings import read_settings
from tilewise.tuner.samplers.guided import BETTER, GuidedSampler

__all__ = ["bench_outlook"]

MOMENTS = (20, 32, 48, 100)
"""Evaluations after which forecasts are compared: whole batches."""
_BINS = 5


@dataclass(frozen=True, slots=True)
class _Forecast:
    """A forecast after some evaluations, and `left`: the gain that was left, as a share of the best time so far."""

    evaluations: int
    chance: float
    expected: float
    left: float


def bench_outlook(files: Sequence[str], *, seeds: int = 12, jobs: int = 1) -> dict[str, Any]:
    """Run searches with the prior, if there is one, and without it, and return the benchmark's JSON.

    Moments that no search comes to are absent. Raises `UsageError` if none comes to any.
    """
    with processes(jobs) as pool:
        running = [
            pool.submit(_listen, file, search, seed)
            for file in files
            for search in (("guided",) if load_recorded(file).prior is None else ("guided", WITHOUT_PRIOR))
            for seed in range(seeds)
        ]
        every = [forecast for future in running for forecast in future.result()]
    if not every:
        raise UsageError(f"no forecast: a landscape needs {MOMENTS[0]} configs or more")
    moments = {n: [f for f in every if f.evaluations == n] for n in MOMENTS}
    return {
        "seeds": seeds,
        "moments": {str(n): _judged(forecasts) for n, forecasts in moments.items() if forecasts},
        "all": _judged(every),
    }


def _listen(file: str, search: str, seed: int) -> list[_Forecast]:
    """Return all forecasts of one search."""
    recorded = load_recorded(file)
    forecasts: list[_Forecast] = []

    def heard(study: Study, numbers: Sequence[int]) -> None:
        assert isinstance(study.sampler, GuidedSampler)
        if len(numbers) not in MOMENTS or (outlook := study.sampler.outlook(study)) is None:
            return
        best = min((t for index in numbers if (t := recorded.times[index]) is not None), default=math.inf)
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
        "reliability": [_bin(forecasts, index) for index in range(_BINS)],
    }


def _bin(forecasts: Sequence[_Forecast], index: int) -> dict[str, Any]:
    inside = [f for f in forecasts if min(int(f.chance * _BINS), _BINS - 1) == index]
    row: dict[str, Any] = {"from": index / _BINS, "to": (index + 1) / _BINS, "forecasts": len(inside)}
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
