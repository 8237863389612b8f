"""`python -m tilewise.benchmarks.search.priors FILE...`: the effect of a right, a wrong and a random prior on `guided`.

The right prior is the recorded log time itself, the inverted one its negative, and the meaningless one the log times in
random order. A failed config counts as the slowest.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.common.script import script
from tilewise.benchmarks.search.search import clocks, load_recorded, replay
from tilewise.tuner.samplers.gaussian_process import Array

__all__ = ["PRIORS", "bench_priors"]

PRIORS: dict[str, Callable[[Array, int], Array | None]] = {
    "none": lambda log_times, seed: None,
    "right": lambda log_times, seed: log_times,
    "inverted": lambda log_times, seed: -log_times,
    "meaningless": lambda log_times, seed: np.random.default_rng(seed).permutation(log_times),
}


def bench_priors(
    files: Sequence[str], *, seeds: int = 12, budget: int = 200, margin: float = 0.1
) -> list[dict[str, Any]]:
    """Return, for each landscape and prior, the median over seeds of the evaluations to come within `margin` of the
    optimum, or None if half of the seeds do not come there within the budget."""
    rows = []
    for file in files:
        recorded = load_recorded(file)
        slowest = max(t for t in recorded.times if t is not None)
        log_times = np.log(np.array([slowest if t is None else t for t in recorded.times]))
        goal = recorded.optimum * (1 + margin)
        row: dict[str, Any] = {"file": Path(file).name, "margin": margin, "seeds": seeds}
        for name, make in PRIORS.items():
            counts = []
            for seed in range(seeds):
                prior = make(log_times, seed)
                table = None if prior is None else (prior[:, None], np.ones(len(prior), dtype=bool))
                course = replay(replace(recorded, prior=table), "guided", seed, budget)
                counts.append(next((n for n, best in enumerate(course.best, 1) if best <= goal), math.inf))
            middle = statistics.median(counts)
            row[name] = middle if math.isfinite(middle) else None
        rows.append(row)
    return rows


if __name__ == "__main__":
    with script():
        found = bench_priors(sys.argv[1:])
    about = header(
        f"python -m tilewise.benchmarks.search.priors {' '.join(row['file'] for row in found)}", clocks(sys.argv[1:])
    )
    print(json.dumps(about | {"rows": found}, indent=1))
