"""`tilewise bench inferred`: searches with a tiling that was inferred, and with the one written by hand.

The project's own kernels are captured as if they were a user's: launched for two problems under Triton's autotuner,
with nothing known of their specs. The tiling and the operations inferred from that replace those of the spec, and both
are replayed on the recorded landscape.
"""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.common.processes import processes
from tilewise.benchmarks.search.search import Recorded, clocks, load_recorded, replay
from tilewise.db.records import Config, Problem
from tilewise.errors import BadImport, BadSpec, NotFound
from tilewise.kernels.spec import KernelSpec, Launch
from tilewise.settings import read_settings
from tilewise.tuner.capture.calls import CapturedKernel
from tilewise.tuner.capture.recorder import recording
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.inference.infer import infer, loaded
from tilewise.tuner.measure.launch import resolve_function
from tilewise.tuner.space.search_space import Space
from tilewise.tuner.tuning.loop import prior_table

__all__ = ["bench_inferred"]

_CONFIGS = 24
"""Configs in the autotuner of a captured kernel, spread over its recorded space."""

_BUDGET = 60
_MARGIN = 0.02


def bench_inferred(files: Sequence[str], *, seeds: int, jobs: int) -> dict[str, Any]:
    """Replay the guided search with both tilings and every seed, and return the JSON.

    A kernel of which nothing can be inferred has the reason instead. Raises `NotFound` if that is so for all.
    """
    importlib.import_module("triton")  # before the pool is made, so that its processes are not forked from this one
    rows: list[dict[str, Any]] = []
    with processes(jobs) as pool:
        for file in files:
            row: dict[str, Any] = {"file": Path(file).name, "configs": len(load_recorded(file).space)}
            try:
                recorded_as(file, inferred=True)
            except (BadSpec, BadImport) as error:
                rows.append(row | {"reason": str(error)})
                continue
            for name in ("by_hand", "inferred"):
                waiting = [pool.submit(_evaluations, file, name == "inferred", seed) for seed in range(seeds)]
                row[name] = statistics.median(future.result() for future in waiting)
            rows.append(row)
    sums = {name: sum(row[name] for row in rows if name in row) for name in ("by_hand", "inferred")}
    if not sums["by_hand"]:
        raise NotFound(f"nothing could be inferred: {rows[0]['reason']}")
    command = f"tilewise bench inferred {' '.join(row['file'] for row in rows)} --seeds {seeds}"
    more = {"seeds": seeds, "budget": _BUDGET, "margin": _MARGIN, "landscapes": rows, "sum": sums}
    return {**header(command, clocks(files)), **more, "ratio": round(sums["inferred"] / sums["by_hand"], 3)}


def _evaluations(file: str, inferred: bool, seed: int) -> float:
    """Return the evaluations until the best is within the margin of the optimum; one more than the budget if never."""
    recorded = recorded_as(file, inferred=inferred)
    best = replay(recorded, "guided", seed, _BUDGET).best
    return next((n for n, time in enumerate(best, 1) if time <= recorded.optimum * (1 + _MARGIN)), _BUDGET + 1)


@cache
def recorded_as(file: str, *, inferred: bool) -> Recorded:
    """Load the part of a landscape in which one function is launched, since a user's kernel is one function, with the
    prior of the spec's own tiling or of the inferred one. Raises `BadSpec` if there is none."""
    device, recorded = ReplayDevice(file), load_recorded(file)
    if device.origin is None:
        raise BadImport(f"{file} is of no kernel of this project")
    spec, problem = device.origin
    kept = _one_function(spec, problem, recorded.space.configs)
    space = Space(recorded.space.domains, [recorded.space.configs[index] for index in kept])
    if inferred:
        spec = _with_inferred_tiling(spec, problem, space.configs)
    _, _, target = device.subject(device.spec, device.problem)
    prior = prior_table(spec, problem, space, target)
    times = [recorded.times[index] for index in kept]
    return replace(recorded, space=space, times=times, seconds=None, prior=prior, origin=(spec, target))


def _one_function(spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> list[int]:
    """Return the indices of the configs of the function that most configs launch alone, in its most frequent form."""
    groups: dict[object, list[int]] = {}
    words = [name for name, value in configs[0].items() if name not in spec.options() and not _is_whole(value)]
    for index, config in enumerate(configs):
        plan = spec.plan(config, problem)
        if len(plan) == 1:
            form = tuple(config[name] for name in words)
            groups.setdefault((plan[0].function, form), []).append(index)
    if not groups:
        raise BadSpec(f"{spec.name} launches several functions in turn, which are kernels of their own")
    return max(groups.values(), key=len)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _with_inferred_tiling(spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> KernelSpec:
    found = infer(_captured(spec, problem, configs), cache_folder=read_settings().cache_folder)
    own, known = loaded(found.text), found.problems[0]
    if not own.tiling(configs[0], known).axes:
        raise BadSpec(found.notes[-1])
    tiling = lambda config, _: own.tiling(config, known)  # noqa: E731
    return replace(spec, tiling=tiling, flops=lambda _: own.flops(known), origin="")


def _captured(spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> CapturedKernel:
    """Record launches of the kernel for the problem, and for another in which all dims are others."""
    import triton

    options = spec.options()
    tuned = [name for name, value in configs[0].items() if name not in options and _is_whole(value)]
    fixed = {name: value for name, value in configs[0].items() if name not in tuned}
    spread = configs[:: math.ceil(len(configs) / _CONFIGS)]
    chosen = {tuple(config[name] for name in tuned): config for config in spread}
    other = {name: size + 96 + 32 * number for number, (name, size) in enumerate(problem.dims.items())}
    with recording() as recorder:
        for one in (problem, replace(problem, dims=other)):
            # a block that is a whole row stays one
            sizes: dict[Any, Any] = {size: one.dims[name] for name, size in problem.dims.items()}
            listed = [
                triton.Config({name: sizes.get(config[name], config[name]) for name in tuned})
                for config in chosen.values()
            ]
            launch = partial(_launch, spec, one, fixed)
            first = launch(configs[0])
            computed = {
                name: lambda given, name=name, launch=launch: launch(given).constants[name] for name in first.constants
            }
            function = resolve_function(spec, first.function)
            function = triton.heuristics(computed)(function) if computed else function
            grid = lambda given, launch=launch: launch(given).grid  # noqa: E731
            words = {name: value for name, value in fixed.items() if name not in options}
            triton.autotune(listed, key=[])(function)[grid](**_arguments(spec, one), **words)
    kernel = max(recorder.kernels, key=lambda kernel: len(kernel.calls))  # another problem may take another function
    if not kernel.calls:
        raise BadSpec(f"no launch of {spec.name} was recorded: {kernel.left_out}")
    return kernel


def _launch(spec: KernelSpec, problem: Problem, fixed: Config, given: Mapping[str, Any]) -> Launch:
    known = {**given, **fixed}
    return spec.plan({p.name: known[p.name] for p in spec.parameters if p.name in known}, problem)[0]


def _arguments(spec: KernelSpec, problem: Problem) -> dict[str, Any]:
    import torch

    tensors = {
        name: torch.empty(buffer.shape, dtype=getattr(torch, buffer.dtype), device="meta")
        for name, buffer in spec.buffers(problem).items()
    }
    return {**tensors, **spec.scalars(problem), **spec.constants(problem)}
