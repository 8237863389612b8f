"""A benchmark of a kernel at many shapes, of which few are tuned: correctness and speed of every call.

Shapes are drawn, and those nearest to the others are tuned. Configs that are good for one are timed on others, and all
results are exported to a file. From that file alone an operator is called on every shape, and its output is compared
with the float64 reference. The choices are evaluated on some of the shapes that were not tuned: these are now tuned
too, and the three configs (chosen, tuned, the spec's default) are timed in turns. The best is the fastest of the three.
"""

from __future__ import annotations

import math
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.db.exchange.native.runtime_file import encode_winners
from tilewise.db.records import Config, Dims, Question, canonical_json
from tilewise.db.store import Store
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.lookup.file_source import FileSource
from tilewise.tuner.lookup.resolve import Match, resolve_with_fallback
from tilewise.tuner.portfolio.build import portfolios
from tilewise.tuner.portfolio.cross_evaluation import cross_evaluate
from tilewise.tuner.runtime.operators import Operator
from tilewise.tuner.space.problem_checks import shape_distance
from tilewise.tuner.tuning.loop import Budget, Tuning

__all__ = ["bench_shapes", "draw_shapes", "medoids"]

LEAST_BYTES, MOST_BYTES = 1 << 18, 1 << 27
"""Bounds of a drawn problem's bytes of traffic."""

_ROUNDS = 3


def bench_shapes(
    device: Device,
    store: Store,
    spec: KernelSpec,
    *,
    dtype: str = "float32",
    shapes: int = 200,
    tuned: int = 20,
    held_out: int = 15,
    trials: int = 16,
    seed: int = 0,
    seconds: float = math.inf,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run `tilewise bench shapes` for one kernel and return its JSON. Times are microseconds on the device's clock.

    After `seconds` no further shape is evaluated, and after 1.5 times `seconds` none is called; the JSON holds the
    counts of both.
    """
    deadline = time.monotonic() + seconds
    problems = [Problem(spec.name, dims, dtype) for dims in draw_shapes(spec, dtype, shapes, seed)]
    chosen = medoids([problem.dims for problem in problems], tuned)
    known = [problem for problem in problems if problem.dims in chosen]
    for count, problem in enumerate(known, 1):
        progress(f"{spec.name}: tuning {count} of {len(known)}")
        Tuning(spec, problem, device, store, budget=Budget(trials)).run()
    crossed = cross_evaluate(spec, known, device, store, progress=progress)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "configs.json")
        scopes = [device.scope(spec, problem) for problem in known]
        made = portfolios(((s, store.trials(s)) for s in scopes), spec)
        results = (store.result(s).to_json() for s in scopes)
        file.write_bytes(encode_winners(results, [portfolio.to_json() for portfolio in made]))
        rest = [problem for problem in problems if problem.dims not in chosen]
        judged = random.Random(seed).sample(rest, min(held_out, len(rest)))
        rows: list[dict[str, Any]] = []
        for count, problem in enumerate(judged, 1):
            if rows and time.monotonic() > deadline:
                break
            progress(f"{spec.name}: evaluating {count} of {len(judged)}")
            rows.append(_judged(device, store, spec, problem, FileSource(file), trials))
        calls = _calls(device, spec, problems, file, deadline + seconds / 2, progress)
    return {
        "kernel": spec.name,
        "dtype": dtype,
        "shapes": len(problems),
        "tuned": len(known),
        "trials_a_shape": trials,
        "crossed": crossed,
        "portfolio": {
            "configs": len(made[0].configs),
            "proven": len(made[0].proven),
            "held_out": made[0].held_out.to_json(),
            "rule_held_out": made[0].rule_held_out.to_json(),
        },
        "calls": calls,
        "held_out": _summary(rows),
        "rows": rows,
    }


def draw_shapes(spec: KernelSpec, dtype: str, count: int, seed: int) -> list[Dims]:
    """Draw distinct shapes, log-uniform in each dimension and within bounds in bytes. In three of four the last
    dimension is a multiple of 64, as in most tensors of real programs."""
    draw = random.Random(f"{seed} {spec.name}")
    found: dict[str, Dims] = {}
    while len(found) < count:
        drawn = [round(2 ** draw.uniform(4, 17)) for _ in spec.dims]
        if draw.random() < 0.75:
            drawn[-1] = 64 * max(1, round(drawn[-1] / 64))
        dims = dict(zip(spec.dims, drawn, strict=True))
        if LEAST_BYTES <= spec.bytes(Problem(spec.name, dims, dtype)) <= MOST_BYTES:
            found[canonical_json(dims)] = dims
    return list(found.values())


def medoids(shapes: Sequence[Dims], count: int) -> list[Dims]:
    """Return `count` of the shapes, such that the sum of all shapes' distances to the nearest of them is small.

    They are added one by one, then exchanged one by one while that helps (PAM: Kaufman and Rousseeuw, Finding Groups
    in Data, 1990, chapter 2).
    """
    away = np.array([[shape_distance(one, other) for other in shapes] for one in shapes])

    def best(kept: Sequence[int]) -> int:
        nearest = away[:, kept].min(axis=1, initial=math.inf)
        sums = np.minimum(nearest[:, None], away).sum(axis=0)
        sums[list(kept)] = math.inf
        return int(sums.argmin())

    chosen: list[int] = []
    while len(chosen) < min(count, len(shapes)):
        chosen.append(best(chosen))
    settled = 0
    while settled < len(chosen):
        rest = chosen[1:]
        one = best(rest)
        better = away[:, [*rest, one]].min(axis=1).sum() < away[:, chosen].min(axis=1).sum() - 1e-9
        settled = 0 if better else settled + 1
        chosen = [*rest, one if better else chosen[0]]
    return [shapes[index] for index in sorted(chosen)]


def _judged(
    device: Device, store: Store, spec: KernelSpec, problem: Problem, source: FileSource, trials: int
) -> dict[str, Any]:
    """Compare the config chosen for an untuned shape with the one that tuning it finds, and with the default."""
    began = time.perf_counter()
    found = resolve_with_fallback(
        source,
        Question(problem, device.target.name),
        spec,
        source_hash=source_hash(spec),
        match=Match.PREDICTED,
        target=device.target,
    )
    seconds = time.perf_counter() - began
    assert found is not None and found.winner is not None, "the portfolio or the prior has an answer to every shape"
    best = Tuning(spec, problem, device, store, budget=Budget(trials)).run().winner
    assert best is not None, "a tuning without a winner raises"
    configs = {"chosen": found.winner.config, "tuned": best.config, "default": spec.default(problem, device.target)}
    times = _timed(device, spec, problem, configs)
    row = {f"{name}_us": round(time_us, 3) for name, time_us in times.items()}
    return {
        "dims": dict(problem.dims),
        "match": found.match,
        "chosen": dict(found.winner.config),
        "choosing_ms": round(seconds * 1e3, 2),
        **row,
        "best_us": min(row.values()),
    }


def _timed(device: Device, spec: KernelSpec, problem: Problem, configs: dict[str, Config]) -> dict[str, float]:
    """Return the median of each config's times over a few rounds; equal configs are timed once."""
    different = list({canonical_json(dict(config)): config for config in configs.values()}.values())
    times: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        for config, outcome in zip(different, device.evaluate(spec, problem, different), strict=True):
            if outcome.timing is not None:
                times.setdefault(canonical_json(dict(config)), []).append(outcome.timing.time_us)
    keys = {name: canonical_json(dict(config)) for name, config in configs.items()}
    return {name: statistics.median(times[key]) for name, key in keys.items() if key in times}


def _calls(
    device: Device,
    spec: KernelSpec,
    problems: Sequence[Problem],
    file: Path,
    deadline: float,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Call an operator on every shape and check its outputs, if this process can launch on the device."""
    if not device.id.startswith("cuda"):
        return {"not_run": f"this process cannot launch on {device.id}"}
    from tilewise.tuner.measure.verify import Arguments, verify

    operator = Operator(spec, file)
    wrong, slowest, count = [], 0.0, 0
    for index, problem in enumerate(problems, 1):
        if time.monotonic() > deadline:
            break
        if index % 20 == 1:
            progress(f"{spec.name}: calling {index} of {len(problems)}")
        arguments = Arguments(spec, problem, device="cuda")
        began = time.perf_counter()
        config = spec.default(problem, device.target)  # the operator makes its own scratch
        verdict = verify(spec, problem, config, arguments, run=partial(operator, **arguments.tensors))
        slowest, count = max(slowest, time.perf_counter() - began), index
        if not verdict.agreed:
            wrong.append({"dims": dict(problem.dims), "reason": verdict.reason})
    matches = Counter(choice.match for choice in operator.choices)
    return {"calls": count, "wrong": wrong, "matches": dict(matches), "slowest_first_call_s": round(slowest, 2)}


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and worst of the times over the best: of the chosen, the tuned and the default config."""
    body: dict[str, Any] = {"shapes": len(rows), "matches": dict(Counter(row["match"] for row in rows))}
    for name in ("chosen", "tuned", "default"):
        ratios = [row[f"{name}_us"] / row["best_us"] for row in rows if f"{name}_us" in row]
        if ratios:
            body[name] = {"mean": round(statistics.fmean(ratios), 4), "worst": round(max(ratios), 4)}
    return body
