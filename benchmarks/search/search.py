"""`tilewise bench search`: searches replayed on recorded landscapes, in which every outcome is known.

A recorded landscape holds the outcome of each config, including failures, so a search on it needs no device. Every
distinct config that a search requests counts as one evaluation, even if it failed.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.common.processes import processes
from tilewise.benchmarks.search.peers import botorch_gp, forest, kernel_tuner, optuna_samplers, smac
from tilewise.benchmarks.search.score import RandomSearch, aggregate, half_width
from tilewise.db.records import Flags, Scope, Status
from tilewise.errors import BadImport, Unavailable, UsageError
from tilewise.kernels.spec import KernelSpec, Problem, Target
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.samplers.base import FAILED, PENALTY, TableSampler, distributions, quiet_study
from tilewise.tuner.samplers.prior_weights import learnt_weights
from tilewise.tuner.samplers.warm_start import MOST, Neighbour, neighbour_indices, scope_distance
from tilewise.tuner.space.search_space import Space
from tilewise.tuner.tuning.loop import SEARCHES, PriorTable, make_sampler, prior_table

__all__ = [
    "CALCULATED",
    "COLUMNS",
    "DEFAULT",
    "MARGINS",
    "WITHOUT_PRIOR",
    "Course",
    "Recorded",
    "bench_search",
    "check_searches",
    "clocks",
    "load_recorded",
    "replay",
]

COLUMNS = (8, 10, 16, 20, 50, 100, 200)
MARGINS = (0.10, 0.05, 0.03, 0.02)
WITHOUT_PRIOR = "guided-without-prior"
NEIGHBOURS = "guided-with-neighbours"
"""The guided search with the results that tuning the other files of the same kernel would have stored."""

CALCULATED = "random-calculated"
KERNEL_TUNER = "kt:"
DEFAULT = ("guided", WITHOUT_PRIOR, "tpe", "random", CALCULATED)

_NEIGHBOUR_TRIALS = 60
"""Trials of the tunings of other shapes whose winners a search with neighbours knows."""

_BATCH = 4
"""Configs per batch, as on the modelled device."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A search of another project: its sampler of a space by a seed, and the package that it imports."""

    sampler: Callable[[Space, int], TableSampler]
    package: str
    install: str

    def unavailable_reason(self) -> str:
        """Return the reason why it cannot be used, or an empty text."""
        missing = not importlib.util.find_spec(self.package)
        return f"{self.package} is not installed: pip install {self.install}" if missing else ""


PEERS = {
    "forest": Peer(forest.ForestSampler, "sklearn", "tilewise[bench]"),
    "botorch": Peer(botorch_gp.BotorchSampler, "botorch", "botorch"),
    "optuna-gp": Peer(optuna_samplers.gaussian_process, "torch", "torch"),
    "optuna-cmaes": Peer(optuna_samplers.cma_es, "cmaes", "cmaes"),
    "smac": Peer(smac.SmacSampler, "smac", "smac"),
}


@dataclass(frozen=True)
class Recorded:
    """A landscape as a space to search.

    By config index it has `times` in microseconds (None for a failed config) and the `seconds` that trying the config
    took (None if any is unknown). `origin` is the spec and target that the prior models.
    """

    file: str
    space: Space
    times: Sequence[float | None]
    seconds: NDArray[np.float64] | None
    prior: PriorTable | None
    origin: tuple[KernelSpec, Target] | None
    scope: Scope

    @property
    def optimum(self) -> float:
        return min(t for t in self.times if t is not None)


@dataclass(frozen=True, slots=True)
class Course:
    """One replayed search: config indices in order of evaluation, the best time after each (inf before the first
    success), and the sampler's own seconds per evaluation (None if unknown)."""

    numbers: Sequence[int]
    best: Sequence[float]
    seconds_per_evaluation: float | None


@cache
def load_recorded(file: str, noise: bool = False, seed: int = 0) -> Recorded:
    """Load a landscape; raise `BadImport` for any other file, or if no config succeeded."""
    device = ReplayDevice(file, noise=noise, seed=seed)
    outcomes = device.evaluate(device.spec, device.problem, device.space.configs)
    times = [o.timing.time_us if o.status is Status.CORRECT and o.timing else None for o in outcomes]
    if not any(t is not None for t in times):
        raise BadImport(f"{file} holds no config that ran correctly")
    known = [row.seconds for row in device.rows]
    seconds = np.array(known, dtype=float) if all(s is not None and s > 0 for s in known) else None
    dims, dtype = device.landscape.metadata.get("dims"), device.landscape.metadata.get("dtype")
    recorded = Problem.of(device.problem.kernel, dims if isinstance(dims, dict) else {}, str(dtype or "recorded"))
    spec, problem, target = device.subject(device.spec, device.problem)
    prior = prior_table(spec, problem, device.space, target)
    origin = (spec, target) if device.origin is not None else None
    return Recorded(file, device.space, times, seconds, prior, origin, device.scope(device.spec, recorded))


def clocks(files: Sequence[str]) -> str:
    """Return the clock of the recorded times, or both clocks."""
    return " and ".join(sorted({str(load_recorded(file).scope.clock) for file in files}))


def check_searches(searches: Sequence[str]) -> None:
    """Raise `UsageError` for an unknown search, and `Unavailable` for one whose package is missing."""
    strategies = [KERNEL_TUNER + name for name in kernel_tuner.STRATEGIES]
    known = (*SEARCHES, WITHOUT_PRIOR, NEIGHBOURS, CALCULATED, *PEERS, *strategies)
    for name in searches:
        if name not in known:
            raise UsageError(f"unknown search {name!r}; expected {', '.join(known)}")
        package = kernel_tuner if name in strategies else PEERS.get(name)
        if package and (reason := package.unavailable_reason()):
            raise Unavailable(f"no search {name}: {reason}")


def replay(
    recorded: Recorded,
    search: str,
    seed: int,
    budget: int,
    neighbours: Sequence[Recorded] = (),
    heard: Callable[[Study, Sequence[int]], None] = lambda study, numbers: None,
) -> Course:
    """Run one search, in batches as on a device.

    `neighbours` are other recordings of the kernel, for the search that learns from tunings of them. `heard` is called
    after each batch with the config indices so far.
    """
    budget = min(budget, len(recorded.space))
    if search.startswith(KERNEL_TUNER):
        strategy = search.removeprefix(KERNEL_TUNER)
        numbers = kernel_tuner.run_strategy(strategy, recorded.space, recorded.times, seed, budget)
        return _course(recorded, numbers, budget, None)
    study = quiet_study(sampler := _sampler(recorded, search, seed, neighbours))
    offered = distributions(recorded.space)
    numbers = []
    spent = 0.0
    while len(numbers) < budget:
        began = time.perf_counter()
        batch = [study.ask(fixed_distributions=offered) for _ in range(min(_BATCH, budget - len(numbers)))]
        for trial in batch:
            index = recorded.space.index_of([trial.params[n] for n in recorded.space.domains])
            assert index is not None, "samplers suggest configs of the space only"
            found = recorded.times[index]
            trial.set_user_attr(FAILED, found is None)
            study.tell(trial, PENALTY if found is None else math.log(found))
            numbers.append(index)
        spent += time.perf_counter() - began
        heard(study, numbers)
    assert len(set(numbers)) == len(numbers) == sum(~sampler.free), "samplers suggest each config once"
    return _course(recorded, numbers, budget, spent / budget)


def _sampler(recorded: Recorded, search: str, seed: int, neighbours: Sequence[Recorded] = ()) -> TableSampler:
    if peer := PEERS.get(search):
        return peer.sampler(recorded.space, seed)
    name = "guided" if search in (WITHOUT_PRIOR, NEIGHBOURS) else search
    known = _known(recorded, seed, neighbours) if search == NEIGHBOURS else []
    return make_sampler(
        name,
        recorded.space,
        seed,
        lambda: None if search == WITHOUT_PRIOR else recorded.prior,
        elsewhere=lambda: neighbour_indices(known, recorded.space),
        weights=lambda: learnt_weights(known, *recorded.origin, recorded.space) if recorded.origin else None,
    )


def _known(recorded: Recorded, seed: int, others: Sequence[Recorded]) -> list[Neighbour]:
    """Return the neighbours that `warm_start.neighbours` would find in a store if each of the others had been tuned.

    Other recordings of the landscape's own problem are left out.
    """
    mine = recorded.scope
    alike = (n for n in others if _family(n.scope) == _family(mine))
    others = [n for n in alike if scope_distance(replace(n.scope, source_hash=mine.source_hash), mine) > 0]
    near = sorted(others, key=lambda n: scope_distance(n.scope, mine))[:MOST]
    return [_tuned(n, seed, scope_distance(n.scope, mine)) for n in near]


def _family(scope: Scope) -> tuple[str, Set[str], Flags]:
    """Return what a neighbour's scope has in common with that of a problem."""
    return scope.kernel, scope.problem.dims.keys(), scope.problem.flags


def _tuned(recorded: Recorded, seed: int, away: float) -> Neighbour:
    course = _tuning(recorded.file, seed)
    ran = [(recorded.space.configs[index], t) for index in course.numbers if (t := recorded.times[index]) is not None]
    at = recorded.scope
    winner = min(ran, key=lambda pair: pair[1])[0]
    return Neighbour(away, at.problem, at.device, winner, ran)


@cache
def _tuning(file: str, seed: int) -> Course:
    """Replay the tuning that would have been stored, without neighbours of its own."""
    return replay(load_recorded(file), "guided", seed, _NEIGHBOUR_TRIALS)


def _course(recorded: Recorded, numbers: Sequence[int], budget: int, spent: float | None) -> Course:
    """Make the course of a search; one that ended early keeps its best to the end of the budget."""
    times = [math.inf if (t := recorded.times[index]) is None else t for index in numbers]
    best = list(itertools.accumulate(times, min))
    return Course(numbers, best + best[-1:] * (budget - len(best)), spent)


def bench_search(
    files: Sequence[str],
    *,
    budget: int = 200,
    seeds: int = 12,
    first_seed: int = 0,
    searches: Sequence[str] = (),
    at: Sequence[int] = COLUMNS,
    noise: bool = False,
    jobs: int = 1,
    done: Callable[[], None] = lambda: None,
    keep: Callable[[dict[str, Any]], None] = lambda body: None,
) -> dict[str, Any]:
    """Replay every search on every landscape with every seed, and return the JSON; call `done` after each replay.

    The seeds are those from `first_seed`. Fractions of the optimum are given after each count of evaluations in `at`
    that the budget holds. `keep` is called after each landscape with the JSON of those so far, so that a long run that
    is stopped is not lost.
    With `noise` a search sees times drawn from the recorded repetitions, different ones for each seed, but is scored
    by the recorded times.
    """
    chosen = _chosen(searches)
    check_searches(chosen)
    columns = [n for n in at if n <= budget]
    if not columns:
        raise UsageError(f"a budget of {budget} holds none of the counts {', '.join(map(str, at))}")
    settings = {"budget": budget, "seeds": seeds, "first_seed": first_seed, "noise": noise}
    rows: list[dict[str, Any]] = []
    curves: dict[str, list[list[float]]] = {name: [] for name in chosen}
    with processes(jobs) as pool:
        for file in files:
            recorded = load_recorded(file)
            run = [name for name in chosen if name != CALCULATED]
            futures = {
                name: [
                    pool.submit(_replay_file, file, name, seed, budget, noise, tuple(files))
                    for seed in range(first_seed, first_seed + seeds)
                ]
                for name in run
            }
            courses: dict[str, list[Course]] = {name: [] for name in run}
            for name, waiting in futures.items():
                for future in waiting:
                    courses[name].append(future.result())
                    done()
            random = RandomSearch(recorded.times)
            summaries = {
                name: _calculated(random, budget, columns)
                if name == CALCULATED
                else _summary(recorded, random, courses[name], budget, columns)
                for name in chosen
            }
            for name in chosen:
                curves[name].append(summaries[name].pop("curve"))
            rows.append(_row(recorded, summaries))
            body = _body(files[: len(rows)], rows, curves, settings, () if at == COLUMNS else at)
            keep(body)
    return body


def _row(recorded: Recorded, summaries: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "file": Path(recorded.file).name,
        "configs": len(recorded.space),
        "device": recorded.scope.device,
        "clock": str(recorded.scope.clock),
        "feasible": sum(t is not None for t in recorded.times),
        "prior": recorded.prior is not None,
        "optimum": recorded.optimum,
        "searches": summaries,
    }


def _body(
    files: Sequence[str],
    rows: Sequence[dict[str, Any]],
    curves: Mapping[str, Sequence[Sequence[float]]],
    settings: Mapping[str, int],
    at: Sequence[int],
) -> dict[str, Any]:
    """Return the JSON of the landscapes so far: their `rows`, and the `curves` of each search on them."""
    words = [
        *(row["file"] for row in rows),
        *(f"--{name.replace('_', '-')} {settings[name]}" for name in ("budget", "seeds", "first_seed")),
        *(f"--search {name}" for name in curves),
        *(f"--at {count}" for count in at),
        *(["--noise"] if settings["noise"] else []),
    ]
    return {
        **header(f"tilewise bench search {' '.join(words)}", clocks(files)),
        **settings,
        "landscapes": list(rows),
        "mean": {name: _mean([row["searches"][name] for row in rows], found) for name, found in curves.items()},
    }


def _replay_file(file: str, search: str, seed: int, budget: int, noise: bool, files: Sequence[str]) -> Course:
    neighbours = [load_recorded(other) for other in files] if search == NEIGHBOURS else []
    if not noise:
        return replay(load_recorded(file), search, seed, budget, neighbours)
    seen = load_recorded(file, True, seed)
    return _judged(replay(seen, search, seed, budget, neighbours), seen, load_recorded(file))


def _judged(course: Course, seen: Recorded, true: Recorded) -> Course:
    """Return the course by recorded times: after each evaluation, the time of the config that led by the times seen."""
    leader, best = course.numbers[0], []
    for index in course.numbers:
        if (seen.times[index] or math.inf) < (seen.times[leader] or math.inf):
            leader = index
        best.append(true.times[leader] or math.inf)
    return Course(course.numbers, best + best[-1:] * (len(course.best) - len(best)), course.seconds_per_evaluation)


def _summary(
    recorded: Recorded, random: RandomSearch, courses: Sequence[Course], budget: int, columns: Sequence[int]
) -> dict[str, Any]:
    """Summarise the courses of one search over the seeds.

    The summary holds the means of the fraction of the optimum with 95% intervals, the medians of the evaluations to
    come within a margin of it (infinite for a seed that does not), and the aggregate scores.
    """
    optimum = recorded.optimum
    fractions = [[optimum / best for best in course.best] for course in courses]
    spent = [c.seconds_per_evaluation for c in courses if c.seconds_per_evaluation is not None]
    reached = {f"{m:.0%}": [_evaluations_to(course, optimum * (1 + m)) for course in courses] for m in MARGINS}
    summary: dict[str, Any] = {
        "fraction": {str(n): round(statistics.fmean(f[_last(n, f)] for f in fractions), 4) for n in columns},
        "fraction_ci95": {str(n): _rounded(half_width([f[_last(n, f)] for f in fractions])) for n in columns},
        "evaluations_to": {margin: _finite(statistics.median(counts)) for margin, counts in reached.items()},
        "evaluations_to_p95": {margin: _finite(_p95(counts)) for margin, counts in reached.items()},
        "score": round(_score(courses, random, None, 1.0), 4),
        "curve": [statistics.fmean(f[_last(n, f)] for f in fractions) for n in range(1, budget + 1)],
    }
    if recorded.seconds is not None:
        average = float(recorded.seconds.mean())
        summary["score_over_time"] = round(_score(courses, random, recorded.seconds, average), 4)
    if spent:
        summary["seconds_per_evaluation"] = round(statistics.fmean(spent), 5)
    for key in ("evaluations_to", "evaluations_to_p95"):
        summary[key] = {margin: value for margin, value in summary[key].items() if value is not None}
    summary["fraction_ci95"] = {n: v for n, v in summary["fraction_ci95"].items() if v is not None}
    return summary


def _score(
    courses: Sequence[Course], random: RandomSearch, seconds: NDArray[np.float64] | None, average: float
) -> float:
    moments = []
    for course in courses:
        each = np.full(len(course.best), average)  # a search that ended early waits
        if seconds is not None:
            each[: len(course.numbers)] = seconds[list(course.numbers)]
        moments.append(np.cumsum(each))
    return aggregate([course.best for course in courses], moments, random, average)


def _calculated(random: RandomSearch, budget: int, columns: Sequence[int]) -> dict[str, Any]:
    """Return random search's expected course, and the evaluations for an even chance to come within a margin."""
    curve = [random.fraction(n) for n in range(1, budget + 1)]
    to = {f"{m:.0%}": random.evaluations_to(m) for m in MARGINS}
    return {
        "fraction": {str(n): round(curve[n - 1], 4) for n in columns},
        "evaluations_to": to,
        "score": 0.0,
        "curve": curve,
    }


def _last(evaluations: int, course: Sequence[float]) -> int:
    return min(evaluations, len(course)) - 1


def _evaluations_to(course: Course, time_us: float) -> float:
    return next((n for n, best in enumerate(course.best, 1) if best <= time_us), math.inf)


def _p95(counts: Sequence[float]) -> float:
    """Return the smallest count that 95% of the seeds did not exceed."""
    return sorted(counts)[math.ceil(0.95 * len(counts)) - 1]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rounded(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def _mean(summaries: Sequence[Mapping[str, Any]], curves: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Average over the landscapes; the intervals cover the seeds only, since the landscapes are fixed."""
    columns = list(summaries[0]["fraction"])
    mean: dict[str, Any] = {
        "fraction": {n: round(statistics.fmean(s["fraction"][n] for s in summaries), 4) for n in columns},
        "curve": [round(statistics.fmean(points), 4) for points in zip(*curves, strict=True)],
    }
    widths = {n: [s["fraction_ci95"][n] for s in summaries if n in s.get("fraction_ci95", {})] for n in columns}
    if all(len(found) == len(summaries) for found in widths.values()):
        mean["fraction_ci95"] = {n: round(math.hypot(*found) / len(found), 4) for n, found in widths.items()}
    for key in ("score", "score_over_time", "seconds_per_evaluation"):
        if all(key in s for s in summaries):
            mean[key] = round(statistics.fmean(s[key] for s in summaries), 5)
    return mean


def replays(files: Sequence[str], seeds: int, searches: Sequence[str]) -> int:
    """Return the number of replays that `bench_search` will run, for a progress bar."""
    return len(files) * seeds * len([name for name in _chosen(searches) if name != CALCULATED])


def _chosen(searches: Sequence[str]) -> list[str]:
    """Return each search once, in the order given."""
    return list(dict.fromkeys(searches or DEFAULT))
