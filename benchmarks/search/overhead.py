"""`python -m tilewise.benchmarks.search.overhead`: the cost of the guided search itself, in spaces of several sizes.

A fifth of the configs fail, so that the search also learns where. Times are the process's CPU seconds with one thread,
which exclude other work of the machine.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewise.benchmarks.common.header import header
from tilewise.tuner.samplers.base import FAILED, PENALTY, distributions, quiet_study
from tilewise.tuner.samplers.guided import GuidedSampler
from tilewise.tuner.space.search_space import Space

__all__ = ["main", "overhead"]

_BATCH = 4
_FAILING = 0.2
_CASES = (((10, 10, 10, 20), 200), ((10,) * 6, 200))


def overhead(sizes: Sequence[int], trials: int, *, prior: bool) -> dict[str, Any]:
    """Search a space of parameters with `sizes` values for `trials` evaluations, and return its cost.

    The JSON holds the CPU milliseconds per evaluation (ask, find the config index, tell): the mean, the mean of the
    last 40, and the slowest; and the process's peak memory in MB.
    """
    count = int(np.prod(sizes))
    value_indices = np.array(np.unravel_index(np.arange(count), sizes)).T.astype(np.uint16)
    space = Space(
        {f"P{n}": tuple(2**power for power in range(size)) for n, size in enumerate(sizes)}, value_indices=value_indices
    )
    away = np.abs(value_indices - np.array(sizes) / 2).sum(axis=1)
    log_times = 0.1 * away + 0.2 * (value_indices[:, 0] == value_indices[:, 1])
    guess = log_times + np.random.default_rng(0).normal(0, 0.2, count)
    fails = np.random.default_rng(1).random(count) < _FAILING
    study = quiet_study(GuidedSampler(space, 0, log_penalties=guess[:, None] if prior else None))
    offered = distributions(space)
    spent: list[float] = []
    while len(spent) < trials:
        batch = []
        for _ in range(_BATCH):
            began = time.process_time()
            trial = study.ask(fixed_distributions=offered)
            index = space.index_of([trial.params[name] for name in space.domains])
            assert index is not None, "samplers suggest configs of the space only"
            batch.append((trial, index))
            spent.append(time.process_time() - began)
        for turn, (trial, index) in enumerate(batch):
            began = time.process_time()
            trial.set_user_attr(FAILED, bool(fails[index]))
            study.tell(trial, PENALTY if fails[index] else float(log_times[index]))
            spent[turn - _BATCH] += time.process_time() - began
    return {
        "configs": count,
        "prior": prior,
        "trials": trials,
        "mean_ms": round(1e3 * float(np.mean(spent)), 1),
        "last_40_ms": round(1e3 * float(np.mean(spent[-40:])), 1),
        "slowest_ms": round(1e3 * max(spent)),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main(cases: Sequence[tuple[Sequence[int], int]] = _CASES) -> None:
    rows = [overhead(sizes, trials, prior=prior) for sizes, trials in cases for prior in (False, True)]
    about = header("OPENBLAS_NUM_THREADS=1 python -m tilewise.benchmarks.search.overhead", "none: times by formula")
    print(json.dumps(about | {"failing": _FAILING, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
