"""`tilewise bench search`: searches replayed on recorded landscapes, where every answer is known.

A recorded landscape tells what each config would have given, failures too; a search on it costs no device. Every
suggestion counts as one evaluation, also that of a config that failed.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tilewise.db.exchange.t4 import Landscape, read_landscape
from tilewise.db.records import Status
from tilewise.errors import BadImport, Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Target
from tilewise.settings import read_settings
from tilewise.tuner.problem import make_problem
from tilewise.tuner.sampler import FAILED, PENALTY, distributions, quiet_study
from tilewise.tuner.search import PriorTable, make_sampler, prior_table
from tilewise.tuner.space import Space

__all__ = ["COLUMNS", "MARGINS", "Recorded", "bench_search", "load_recorded", "replay"]

COLUMNS = (20, 50, 100, 200)
MARGINS = (0.10, 0.05, 0.02)
_BATCH = 4
WITHOUT_PRIOR = "guided-without-prior"


@dataclass(frozen=True)
class Recorded:
    """A landscape as a space to search: `times` in microseconds by config number, None where the config failed."""

    file: str
    space: Space
    times: Sequence[float | None]
    prior: PriorTable | None

    @property
    def optimum(self) -> float:
        return min(t for t in self.times if t is not None)


@dataclass(frozen=True, slots=True)
class Course:
    """One replayed search: the best time after each evaluation (inf before the first success), and the sampler's own
    seconds an evaluation."""

    best: Sequence[float]
    seconds_per_evaluation: float


@cache
def load_recorded(file: str) -> Recorded:
    """Raises `BadImport` for a file that is no landscape, or one in which nothing succeeded."""
    landscape = read_landscape(Path(file))
    domains = {name: _domain(landscape, name) for name in landscape.parameters}
    space = Space(domains, tuple(row.config for row in landscape.rows))
    times = [row.time_us if row.status is Status.CORRECT else None for row in landscape.rows]
    if not any(t is not None for t in times):
        raise BadImport(f"{file} holds no config that ran correctly")
    return Recorded(file, space, times, _prior(landscape, space))


def _domain(landscape: Landscape, name: str) -> tuple[Any, ...]:
    values = dict.fromkeys(row.config[name] for row in landscape.rows)
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    return tuple(sorted(values)) if numbers else tuple(values)


def _prior(landscape: Landscape, space: Space) -> PriorTable | None:
    """The prior's table for a landscape of one of our own kernels on an Ascend part; others have none."""
    metadata = landscape.metadata
    if metadata.get("kernel") not in registry.names() or "dims" not in metadata:
        return None
    spec = registry.load(metadata["kernel"])
    problem = make_problem(spec, metadata["dims"], metadata["dtype"])
    return prior_table(spec, problem, space, _target(metadata))


def _target(metadata: Mapping[str, Any]) -> Target:
    from tilewise.tuner.devices.model import toolchain
    from tilewise.tuner.devices.model.parts import PARTS

    if metadata["device"] not in PARTS:
        return Target("nvidia", metadata["device"], metadata["cores"], 228 * 1024, 16, 2**31 - 1)
    if reason := toolchain.why_not():
        raise Unavailable(f"a landscape of {metadata['device']} {reason}")
    return toolchain.target(metadata["device"], read_settings().cache_folder)


def replay(recorded: Recorded, search: str, seed: int, budget: int) -> Course:
    """Run one search, in batches as a device would take them."""
    table = recorded.prior if search == "guided" else None
    name = "guided" if search == WITHOUT_PRIOR else search
    study = quiet_study(make_sampler(name, recorded.space, seed, (lambda: table) if table else None))
    offered = distributions(recorded.space)
    budget = min(budget, len(recorded.space))
    best, spent = [math.inf], 0.0
    while len(best) <= budget:
        began = time.perf_counter()
        asked = [study.ask(fixed_distributions=offered) for _ in range(min(_BATCH, budget + 1 - len(best)))]
        for trial in asked:
            number = recorded.space.numbered([trial.params[n] for n in recorded.space.domains])
            assert number is not None, "samplers suggest configs of the space only"
            found = recorded.times[number]
            trial.set_user_attr(FAILED, found is None)
            study.tell(trial, PENALTY if found is None else math.log(found))
            best.append(min(best[-1], math.inf if found is None else found))
        spent += time.perf_counter() - began
    return Course(best[1:], spent / budget)


def bench_search(
    files: Sequence[str],
    *,
    budget: int = 200,
    seeds: int = 12,
    searches: Sequence[str] = (),
    jobs: int = 1,
    done: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Replay every search on every landscape with every seed. `done` is called after each replay."""
    chosen = list(searches) or ["guided", WITHOUT_PRIOR, "tpe", "random"]
    rows = []
    with ProcessPoolExecutor(jobs) as pool:
        for file in files:
            recorded = load_recorded(file)
            futures = {
                name: [pool.submit(_replay_file, file, name, s, budget) for s in range(seeds)] for name in chosen
            }
            courses: dict[str, list[Course]] = {name: [] for name in chosen}
            for name, waiting in futures.items():
                for future in waiting:
                    courses[name].append(future.result())
                    done()
            rows.append(
                {
                    "file": Path(file).name,
                    "configs": len(recorded.space),
                    "feasible": sum(t is not None for t in recorded.times),
                    "prior": recorded.prior is not None,
                    "optimum": recorded.optimum,
                    "searches": {name: _summary(recorded.optimum, found, budget) for name, found in courses.items()},
                }
            )
    return {
        "budget": budget,
        "seeds": seeds,
        "landscapes": rows,
        "mean": _mean(rows, chosen, [n for n in COLUMNS if n <= budget]),
    }


def _replay_file(file: str, search: str, seed: int, budget: int) -> Course:
    return replay(load_recorded(file), search, seed, budget)


def _summary(optimum: float, courses: Sequence[Course], budget: int) -> dict[str, Any]:
    """Means over seeds of the fraction of the optimum; medians of the evaluations to come within a margin of it."""
    fraction = {
        str(n): statistics.fmean(optimum / course.best[min(n, len(course.best)) - 1] for course in courses)
        for n in COLUMNS
        if n <= budget
    }
    to = {
        f"{margin:.0%}": _median([_evaluations_to(course, optimum * (1 + margin)) for course in courses])
        for margin in MARGINS
    }
    spent = statistics.fmean(course.seconds_per_evaluation for course in courses)
    return {
        "fraction": {n: round(value, 4) for n, value in fraction.items()},
        "evaluations_to": {margin: value for margin, value in to.items() if value is not None},
        "seconds_per_evaluation": round(spent, 5),
    }


def _evaluations_to(course: Course, time_us: float) -> float:
    return next((n for n, best in enumerate(course.best, 1) if best <= time_us), math.inf)


def _median(counts: Sequence[float]) -> float | None:
    middle = statistics.median(counts)
    return middle if math.isfinite(middle) else None


def _mean(rows: Sequence[Mapping[str, Any]], searches: Sequence[str], columns: Sequence[int]) -> dict[str, Any]:
    def over(name: str, pick: Callable[[Mapping[str, Any]], float]) -> float:
        return round(statistics.fmean(pick(row["searches"][name]) for row in rows), 5)

    return {
        name: {
            "fraction": {str(n): over(name, lambda s, n=n: s["fraction"][str(n)]) for n in columns},  # type: ignore[misc]
            "seconds_per_evaluation": over(name, lambda s: s["seconds_per_evaluation"]),
        }
        for name in searches
    }


def replays(files: Sequence[str], seeds: int, searches: Sequence[str]) -> int:
    """How many replays `bench_search` will run, for a progress bar."""
    return len(files) * seeds * (len(searches) or 4)
