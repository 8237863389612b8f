"""`tilewise bench repeatability`: the agreement of repeated tunings, and the cost of timing, on an NVIDIA GPU.

One problem is tuned several times from nothing, each time in new processes and with another seed. The winners' true
times come from a long measurement in turns. The same candidates are also tried in one order and in its reverse.
Finally the time spent on timing is compared with that of `triton.testing.do_bench` with its defaults for every trial.
"""

from __future__ import annotations

import dataclasses
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from tilewise.db.records import Result, Status, Trial, canonical_json, shape_text
from tilewise.db.sql.sql_store import open_store
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.cuda.device import CudaDevice
from tilewise.tuner.space.search_space import enumerate_space
from tilewise.tuner.tuning.loop import Budget, Tuning
from tilewise.tuner.tuning.rebenchmark import CONTEST

__all__ = ["bench_repeatability"]

SHAPES = ({"M": 250, "N": 8192}, {"M": 1000, "N": 8192}, {"M": 6000, "N": 8192}, {"M": 16384, "N": 8192})
"""Shapes of row_reduce, small to large."""

Progress = Callable[[str], None]


def bench_repeatability(
    spec: KernelSpec,
    problem: Problem,
    *,
    tunings: int,
    trials: int,
    rounds: int,
    seconds: float,
    progress: Progress,
    winners_only: bool = False,
) -> dict[str, Any]:
    """Run the benchmark and return its JSON; start no further tuning after `seconds`. Raise `Unavailable` if there is
    no GPU. `winners_only` leaves out the order of the candidates, the times in several processes, and `do_bench`."""
    if winners_only:
        return _winners(spec, problem, tunings, trials, rounds, seconds, progress)
    runs: list[dict[str, Any]] = []
    processes: list[dict[str, float]] = []
    end = time.monotonic() + seconds
    for seed in range(tunings):
        if runs and time.monotonic() >= end:
            break
        progress(f"tuning {seed + 1} of {tunings}")
        with CudaDevice() as device:
            runs.append(_tuned(spec, problem, device, trials, seed))
            processes.append(_medians(device))
            name, toolchain = device.target.name, device.toolchain
    with CudaDevice() as device:
        progress("one order and its reverse")
        drawn = random.Random(0).sample(enumerate_space(spec, problem, device.target).configs, trials)
        orders = [_in_order(spec, problem, device, configs) for configs in (drawn, drawn[::-1])]
        progress("winners in turns")
        winners = {canonical_json(run["config"]): run["config"] for run in (*runs, *orders)}
        true_us = dict(zip(winners, _true_times(spec, problem, device, list(winners.values()), rounds), strict=True))
    for run in (*runs, *orders):
        run["true_us"] = true_us[canonical_json(run["config"])]
    progress("do_bench")
    plain = _do_bench(spec, problem, [t.config for t in orders[0].pop("trials_kept") if t.status is Status.CORRECT])
    orders[1].pop("trials_kept")
    with CudaDevice() as device:
        ours, theirs = _true_times(spec, problem, device, [orders[0]["config"], plain["config"]], rounds)
    return {
        "command": f"tilewise bench repeatability {spec.name} -s {shape_text(problem.shape)} --tunings {tunings} "
        f"--trials {trials} --timeout {seconds:g}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": name,
        "clock": "measured",
        "toolchain": toolchain,
        "kernel": spec.name,
        "dims": dict(problem.dims),
        "dtype": problem.dtype,
        "tunings": runs,
        "true_us_largest_by_smallest": _spread([run["true_us"] for run in runs]),
        "one_config_in_processes": _by_shape(processes),
        "order": {"forward": orders[0], "reversed": orders[1], "same_or_tie": _agree(*orders)},
        "do_bench": {**plain, "true_us": theirs},
        "timing": {
            "configs": plain["configs"],
            "ours_s": orders[0]["timing_s"],
            "do_bench_s": plain["timing_s"],
            "ratio": round(plain["timing_s"] / orders[0]["timing_s"], 2),
            "winner_true_us": ours,
            "do_bench_winner_true_us": theirs,
        },
    }


def _winners(
    spec: KernelSpec, problem: Problem, tunings: int, trials: int, rounds: int, seconds: float, progress: Progress
) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    end = time.monotonic() + seconds
    while len(runs) < tunings and (not runs or time.monotonic() < end):
        progress(f"tuning {len(runs) + 1} of {tunings}")
        with CudaDevice() as device:
            runs.append(_tuned(spec, problem, device, trials, len(runs)))
    with CudaDevice() as device:
        progress("winners in turns")
        winners = {canonical_json(run["config"]): run["config"] for run in runs}
        true_us = dict(zip(winners, _true_times(spec, problem, device, list(winners.values()), rounds), strict=True))
        about = {"device": device.target.name, "clock": "measured", "toolchain": device.toolchain}
    for run in runs:
        run["true_us"] = true_us[canonical_json(run["config"])]
    return {
        "command": f"tilewise bench repeatability {os.path.relpath(spec.origin)} -s {shape_text(problem.shape)} "
        f"--dtype {problem.dtype} --tunings {tunings} --trials {trials} --timeout {seconds:g} --winners-only",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
        "kernel": spec.name,
        "dims": dict(problem.dims),
        "dtype": problem.dtype,
        "tunings": runs,
        "true_us_largest_by_smallest": _spread([run["true_us"] for run in runs]),
    }


def _tuned(spec: KernelSpec, problem: Problem, device: CudaDevice, trials: int, seed: int) -> dict[str, Any]:
    with open_store("sqlite://") as store:
        began = time.monotonic()
        result = Tuning(spec, problem, device, store, budget=Budget(trials), seed=seed).run()
        return {"seed": seed, "wall_s": round(time.monotonic() - began, 2)} | _row(result, store.trials(result.scope))


def _in_order(spec: KernelSpec, problem: Problem, device: CudaDevice, configs: Sequence[Config]) -> dict[str, Any]:
    """Tune with exactly these configs in this order."""
    ordered = dataclasses.replace(spec, configs=lambda problem, target: configs)
    with open_store("sqlite://") as store:
        result = Tuning(ordered, problem, device, store, budget=Budget(None), search="exhaustive").run()
        kept = store.trials(result.scope)
        return _row(result, kept) | {"trials_kept": kept}


def _row(result: Result, trials: Sequence[Trial]) -> dict[str, Any]:
    winner = result.winner
    assert winner is not None, "a tuning without a winner raises"
    timed = [t.facts for t in trials if "timing_s" in t.facts]
    compared = {canonical_json(dict(t.config)): t.facts[CONTEST] for t in trials if CONTEST in t.facts}
    return {
        "config": dict(winner.config),
        "time_us": winner.time_us,
        "tie": result.to_json().get("tie"),
        "probability": result.to_json().get("probability"),
        "tied_with": [key for key, facts in compared.items() if facts["tied"]],
        "compared": len(compared),
        "trials": len(trials),
        "dropped": sum(t.dropped for t in trials),
        "drifts": sum("drift" in t.facts for t in trials),
        "samples": sum(t.samples for t in trials),
        "timing_s": round(sum(f["timing_s"] for f in timed) + sum(f["timing_s"] for f in compared.values()), 3),
    }


def _medians(device: CudaDevice) -> dict[str, float]:
    """Time one config of row_reduce at each shape, in the device's own process."""
    from tilewise.kernels import registry

    spec, medians = registry.load("row_reduce"), {}
    for dims in SHAPES:
        problem = Problem(spec.name, dims, "float32")
        (outcome,) = device.evaluate(spec, problem, [spec.default(problem, device.target)])
        if outcome.timing is not None:
            medians[f"{dims['M']}x{dims['N']}"] = outcome.timing.time_us
    return medians


def _by_shape(processes: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    rows = []
    for shape in processes[0]:
        medians = [medians[shape] for medians in processes if shape in medians]
        median = statistics.median(medians)
        rows.append({"shape": shape, "median_us": median, "largest_by_smallest": _spread(medians), "medians": medians})
    return rows


def _true_times(
    spec: KernelSpec, problem: Problem, device: CudaDevice, configs: Sequence[Config], rounds: int
) -> list[float]:
    outcomes = device.race(spec, problem, configs, rounds)
    return [round(statistics.median(o.timing.times_us), 4) if o.timing else float("nan") for o in outcomes]


def _do_bench(spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
    """Return the best config by `do_bench`, and the seconds that timing all of them took, without compiling."""
    from triton.testing import do_bench

    from tilewise.tuner.devices.cuda.accelerator import CudaRuntime
    from tilewise.tuner.devices.measured.bench_process import Bench

    bench, seconds, times = Bench(CudaRuntime()), 0.0, []
    for config in configs:
        job = bench.job(spec, problem, config)
        job.run()
        bench.runtime.synchronize()
        began = time.monotonic()
        times.append(1e3 * do_bench(job.run, return_mode="median"))
        seconds += time.monotonic() - began
    best = min(range(len(configs)), key=times.__getitem__)
    found = {"config": dict(configs[best]), "time_us": round(times[best], 4)}
    return found | {"configs": len(configs), "timing_s": round(seconds, 3)}


def _agree(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether both have the same winner, or each declares a tie that includes the other's winner."""
    keys = [canonical_json(each["config"]) for each in (one, other)]
    return keys[0] == keys[1] or (keys[1] in one["tied_with"] and keys[0] in other["tied_with"])


def _spread(values: Sequence[float]) -> float:
    return round(max(values) / min(values) - 1, 5)
