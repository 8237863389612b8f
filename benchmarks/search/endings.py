"""`python -m tilewise.benchmarks.search.endings FILE...`: the winners of whole tunings of recorded landscapes.

Each landscape is tuned from nothing with many seeds, as on the recorded device: with its batches, the prior, and the
default last. If single runs were recorded, times are drawn from these, configs that are clearly behind are dropped, and
the leaders are timed in turns. `left` is how much longer the declared winner takes than the best of the file, by the
recorded times (medians of the repetitions, if times are drawn from these). With `--without-prior` the search knows only
the configs.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.common.processes import processes
from tilewise.benchmarks.common.script import script
from tilewise.benchmarks.search.search import Recorded, clocks, load_recorded
from tilewise.db.records import Clock, canonical_json
from tilewise.db.sql.sql_store import open_store
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.settings import read_settings
from tilewise.tuner.devices.cuda.device import CudaDevice
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.measure.robust_stats import quantile
from tilewise.tuner.tuning.loop import Budget, Tuning

__all__ = ["NEAR", "Ending", "bench_endings", "summary", "tune_recorded"]

BUDGETS = (60, 120, 240)
NEAR = 0.01
"""The largest `left`, as a share, at which a tuning's winner counts as near the best."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one tuning. `alone`: it ended before its budget was spent. `left`: as a share of the optimum.

    `behind` has, for each trial in order, the share by which its config is slower than the optimum; inf if it failed.
    """

    trials: int
    alone: bool
    left: float
    behind: Sequence[float]


def bench_endings(
    files: Sequence[str], *, budgets: Sequence[int] = BUDGETS, seeds: int = 40, prior: bool = True, jobs: int = 1
) -> dict[str, Any]:
    """Run the benchmark and return its JSON."""
    with processes(jobs) as pool:
        running = {
            file: [pool.submit(tune_recorded, file, budgets, seed, prior) for seed in range(seeds)] for file in files
        }
        endings = {file: [future.result() for future in futures] for file, futures in running.items()}
    return {
        "seeds": seeds,
        "prior": prior,
        "near": NEAR,
        "budgets": {
            str(budget): {
                "all": summary([one[index] for tunings in endings.values() for one in tunings]),
                "landscapes": [
                    {"file": Path(file).name, **summary([one[index] for one in tunings])}
                    for file, tunings in endings.items()
                ],
            }
            for index, budget in enumerate(budgets)
        },
    }


class _RecordedGpu(ReplayDevice):
    batch = CudaDevice.batch


def tune_recorded(file: str, budgets: Sequence[int], seed: int, prior: bool = True) -> list[Ending]:
    """Tune once, resumed with each of the (rising) budgets, and return the ending at each."""
    recorded = load_recorded(file)
    device = _device(file, recorded, seed)
    if not prior:
        device.origin = None
    spec, problem = _origin(device, recorded)
    true_us, found = _true_us(device), []
    with open_store("sqlite://") as store:
        for budget in budgets:
            tuning = Tuning(spec, problem, device, store, budget=Budget(budget), seed=seed)
            winner = tuning.run().winner
            assert winner is not None, "a tuning without a winner raises"
            drawn = sorted(
                (t for t in store.trials(tuning.scope) if t.ordinal is not None), key=lambda t: t.ordinal or 0
            )
            behind = [_behind(true_us, trial.config) for trial in drawn]
            alone = len(drawn) < min(budget, len(device.space))
            found.append(Ending(len(drawn), alone, _behind(true_us, winner.config), behind))
    return found


def _device(file: str, recorded: Recorded, seed: int) -> ReplayDevice:
    """Open the recording; times are drawn from single repetitions where these were recorded."""
    gpu = recorded.origin is not None and recorded.origin[1].family == "nvidia"
    kind = _RecordedGpu if gpu else ReplayDevice
    device = kind(file, seed=seed)
    noisy = recorded.scope.clock is Clock.MEASURED and any(row.samples_us for row in device.rows)
    return kind(file, noise=True, seed=seed) if noisy else device


def _behind(true_us: Mapping[str, float], config: Config) -> float:
    return true_us.get(canonical_json(dict(config)), math.inf) / min(true_us.values()) - 1


def _true_us(device: ReplayDevice) -> dict[str, float]:
    """Return the true time of each config: the median of its repetitions if times are drawn, else the recorded time."""
    return {
        canonical_json(dict(row.config)): quantile(
            row.samples_us if device.noisy and row.samples_us else [row.time_us], 0.5
        )
        for row in device.rows
        if row.time_us is not None
    }


def _origin(device: ReplayDevice, recorded: Recorded) -> tuple[KernelSpec, Problem]:
    """Return the recorded kernel's spec and problem, restricted to the recorded configs; give the device its target."""
    if device.origin is None or recorded.origin is None:
        return device.spec, device.problem
    spec, problem = device.origin
    device.target = recorded.origin[1]
    default = spec.default(problem, device.target)
    known = {name: default[name] for name in recorded.space.domains}
    over = dataclasses.replace(
        spec,
        parameters=device.spec.parameters,
        configs=lambda *_: recorded.space.configs,
        default=lambda *_: known,
    )
    return over, problem


def summary(endings: Sequence[Ending]) -> dict[str, Any]:
    """Summarise the ends of tunings: how many came near the best, the worst, and how many ended alone."""
    alone = [ending for ending in endings if ending.alone]
    return {
        "tunings": len(endings),
        "near": sum(ending.left <= NEAR for ending in endings),
        "left_worst": round(max(ending.left for ending in endings), 4),
        "trials": round(statistics.fmean(ending.trials for ending in endings), 1),
        "ended_alone": len(alone),
        "ended_alone_near": sum(ending.left <= NEAR for ending in alone),
    }


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--seeds", default=40, show_default=True)
@click.option("--budget", "budgets", multiple=True, type=int, default=BUDGETS, show_default=True)
@click.option("--without-prior", is_flag=True)
def main(files: tuple[str, ...], seeds: int, budgets: tuple[int, ...], without_prior: bool) -> None:
    body = bench_endings(
        files, budgets=sorted(budgets), seeds=seeds, prior=not without_prior, jobs=read_settings().jobs
    )
    names = " ".join(Path(file).name for file in files)
    options = f"--seeds {seeds} " + " ".join(f"--budget {budget}" for budget in sorted(budgets))
    options += " --without-prior" * without_prior
    command = f"python -m tilewise.benchmarks.search.endings {names} {options}"
    print(json.dumps(header(command, clocks(files)) | body, indent=1))


if __name__ == "__main__":
    with script():
        main()
