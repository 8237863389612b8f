"""The earlier runs on untuned shapes of an H200: what a neighbour's config cost there, beside the other choices.

The first run took a neighbour whose ratios multiply to at most 2, and the two later ones 1.25. For the other shapes
the first run chose among the few configs of its portfolio; the forecast came after it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tilewise.benchmarks.claims.claim import Raw
from tilewise.benchmarks.launch.untuned_shapes import draw_shapes
from tilewise.db.records import Dims
from tilewise.kernels import registry
from tilewise.tuner.lookup.nearest_shapes import NEAREST_BOUND
from tilewise.tuner.lookup.resolve import Match
from tilewise.tuner.space.problem_checks import shape_distance

__all__ = ["first_run_distances", "near_cases", "near_words"]


def near_words(raw: Raw) -> str:
    first, *later = _runs(raw)
    near, others = _costs([first])
    near_later, others_later = _costs(later)
    beyond = sum(match == Match.NEAREST and away > NEAREST_BOUND for match, away in first_run_distances(raw))
    return (
        f"with the earlier bound of 2, in the first kept run, the {len(near)} shapes launched with a neighbour's "
        f"config ({beyond} of them beyond 1.25) took {statistics.fmean(near):.3f} times the best time on average, and "
        f"the {len(others)} others, launched with one of the few configs of the portfolio of then, "
        f"{statistics.fmean(others):.3f} times; with the bound of 1.25, in the two later runs, {len(near_later)} "
        f"launched with a neighbour's took {statistics.fmean(near_later):.3f} and the {len(others_later)} others, "
        f"launched by the forecast, {statistics.fmean(others_later):.3f}"
    )


def near_cases(raw: Raw) -> str:
    runs = _runs(raw)
    judged = sum(len(kernel["rows"]) for run in runs for kernel in run["kernels"])
    return (
        f"{judged} shapes of three kernels in {len(runs)} runs; not the same shapes on both sides; no run compares "
        "both on one shape"
    )


def first_run_distances(raw: Raw) -> Iterator[tuple[str, float]]:
    """Yield for each judged shape of the first run how it was matched, and its distance to the nearest tuned shape.

    The file does not list the tuned shapes. They are those of the recorded seed that are farthest from one another.
    """
    first = _runs(raw)[0]
    for kernel in first["kernels"]:
        drawn = draw_shapes(registry.load(kernel["kernel"]), kernel["dtype"], kernel["shapes"], first["seed"])
        tuned = _farthest(drawn, kernel["tuned"])
        for row in kernel["rows"]:
            yield row["match"], min(shape_distance(row["dims"], dims) for dims in tuned)


def _runs(raw: Raw) -> Sequence[Mapping[str, Any]]:
    runs: Sequence[Mapping[str, Any]] = raw["shapes-h200-earlier"]["runs"]
    return runs


def _costs(runs: Iterable[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """Return the times over the best of the shapes launched with a neighbour's config, and of the others."""
    costs: dict[bool, list[float]] = {True: [], False: []}
    for row in (row for run in runs for kernel in run["kernels"] for row in kernel["rows"]):
        costs[row["match"] == Match.NEAREST].append(row["chosen_us"] / row["best_us"])
    return costs[True], costs[False]


def _farthest(shapes: Sequence[Dims], count: int) -> list[Dims]:
    """Return `count` of the shapes: the one in the middle, then each the farthest from those before."""
    chosen = [min(shapes, key=lambda dims: sum(shape_distance(dims, other) for other in shapes))]
    while len(chosen) < count:
        chosen.append(max(shapes, key=lambda dims: min(shape_distance(dims, other) for other in chosen)))
    return chosen
