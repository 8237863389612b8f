"""A program that calls a kernel over many shapes of which few are tuned: is every call right, and what does it cost?

Shapes are drawn; those that the others are nearest to are tuned, what is good for one timed on others, and the whole
exported to a file. From that file alone an operator is then called on every shape, its output compared with the float64
reference. What the choices cost is judged on shapes that were not tuned: some are tuned after all, and the three
configs (chosen, tuned, the spec's default) timed in turns. The best is the fastest of the three.
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
from tilewise.tuner.space.problem import shape_distance
from tilewise.tuner.tuning.loop import Budget, Tuning

__all__ = ["bench_shapes", "draw_shapes", "medoids"]

LEAST_BYTES, MOST_BYTES = 1 << 18, 1 << 27
"""Of a drawn problem's traffic."""

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
    """One kernel's part of `tilewise bench shapes`. Times are microseconds on the device's clock.

    Judging ends with the first shape after `seconds`, calling with the first after half as long again; the counts say
    how many there were.
    """
    deadline = time.monotonic() + seconds
    problems = [Problem(spec.name, dims, dtype) for dims in draw_shapes(spec, dtype, shapes, seed)]
    chosen = medoids([problem.dims for problem in problems], tuned)
    known = [problem for problem in problems if problem.dims in chosen]
    for place, problem in enumerate(known, 1):
        progress(f"{spec.name}: tuning {place} of {len(known)}")
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
        for place, problem in enumerate(judged, 1):
            if rows and time.monotonic() > deadline:
                break
            progress(f"{spec.name}: judging {place} of {len(judged)}")
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
    """Different shapes, log-uniform in each dimension and within bounds in bytes; three of four have a last dimension
    that is a multiple of 64, as tensors of real programs mostly have."""
    draw = random.Random(f"{seed} {spec.name}")
    found: dict[str, Dims] = {}
    while len(found) < count:
        sizes = [round(2 ** draw.uniform(4, 17)) for _ in spec.dims]
        if draw.random() < 0.75:
            sizes[-1] = 64 * max(1, round(sizes[-1] / 64))
        dims = dict(zip(spec.dims, sizes, strict=True))
        if LEAST_BYTES <= spec.bytes(Problem(spec.name, dims, dtype)) <= MOST_BYTES:
            found[canonical_json(dims)] = dims
    return list(found.values())


def medoids(shapes: Sequence[Dims], count: int) -> list[Dims]:
    """So many of the shapes, to which the others are near: the sum of the distances to the nearest of them is small.

    Added one by one, then exchanged one by one while that helps (Kaufman and Rousseeuw, Finding Groups in Data, 1990,
    chapter 2: PAM).
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
    return [shapes[place] for place in sorted(chosen)]


def _judged(
    device: Device, store: Store, spec: KernelSpec, problem: Problem, source: FileSource, trials: int
) -> dict[str, Any]:
    """A shape that was not tuned: what it is launched with, beside what tuning it finds and the default."""
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
    """The median of some rounds of each config, those that are the same timed once."""
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
    """An operator called on every shape, its outputs checked. Only where this process can launch on the device."""
    if not device.id.startswith("cuda"):
        return {"not_run": f"{device.id} runs nothing that this process launches"}
    from tilewise.tuner.measure.verify import Arguments, verify

    operator = Operator(spec, file)
    wrong, slowest, count = [], 0.0, 0
    for place, problem in enumerate(problems, 1):
        if time.monotonic() > deadline:
            break
        if place % 20 == 1:
            progress(f"{spec.name}: calling {place} of {len(problems)}")
        arguments = Arguments(spec, problem, device="cuda")
        began = time.perf_counter()
        config = spec.default(problem, device.target)  # its scratch is not used: the operator makes its own
        verdict = verify(spec, problem, config, arguments, run=partial(operator, **arguments.tensors))
        slowest, count = max(slowest, time.perf_counter() - began), place
        if not verdict.agreed:
            wrong.append({"dims": dict(problem.dims), "reason": verdict.reason})
    matches = Counter(choice.match for choice in operator.choices)
    return {"calls": count, "wrong": wrong, "matches": dict(matches), "slowest_first_call_s": round(slowest, 2)}


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and worst time over the best, of what was chosen and of the default."""
    body: dict[str, Any] = {"shapes": len(rows), "matches": dict(Counter(row["match"] for row in rows))}
    for name in ("chosen", "tuned", "default"):
        ratios = [row[f"{name}_us"] / row["best_us"] for row in rows if f"{name}_us" in row]
        if ratios:
            body[name] = {"mean": round(statistics.fmean(ratios), 4), "worst": round(max(ratios), 4)}
    return body
