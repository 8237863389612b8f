"""`tilewise bench wall`: the wall-clock time from nothing to a config near the best, on an NVIDIA GPU.

Each search starts with an empty compile cache, an empty database and no compile process running. The best time is that
of an exhaustive run, which must be stored. `triton.autotune` compiles and times every config in one process, one after
the other, so its time over the whole space is its time over a random sample, scaled by the number of configs.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.db.records import Scope, Status, Trial, shape_text
from tilewise.db.sql.sql_store import open_store
from tilewise.db.store import Store
from tilewise.errors import NotFound, UsageError
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.cuda.device import CudaDevice
from tilewise.tuner.measure.launch import resolve_function
from tilewise.tuner.space.search_space import enumerate_space
from tilewise.tuner.tuning.loop import Budget, Tuning, Watcher

__all__ = ["bench_wall"]

MARGIN = 0.03
LIMIT = 200
"""Evaluations after which a search gives up."""


class _Near(Exception):
    """Raised by the watcher to end a search that came near enough to the best."""


class _Stopwatch(Watcher):
    def __init__(self, goal_us: float, began: float) -> None:
        self._goal, self._began = goal_us, began
        self.seconds, self.evaluations, self.best_us = 0.0, 0, float("inf")

    def tried(self, trial: Trial, best: Trial | None) -> None:
        self.seconds, self.evaluations = time.monotonic() - self._began, self.evaluations + 1
        if best is not None and best.time_us is not None:
            self.best_us = best.time_us
        if self.best_us <= self._goal:
            raise _Near


def bench_wall(
    spec: KernelSpec, problem: Problem, store: Store, *, seeds: int = 3, sample: int = 40, jobs: int | None = None
) -> dict[str, Any]:
    """Run the benchmark and return its JSON; raise `NotFound` if no exhaustive run of the problem is stored."""
    with CudaDevice() as device:
        space = enumerate_space(spec, problem, device.target)
        best_us = _exhaustive_best(store, device.scope(spec, problem), len(space))
        name, toolchain = device.target.name, device.toolchain
    goal = best_us * (1 + MARGIN)
    searches = {
        search: [_search(spec, problem, search, seed, goal, jobs) for seed in range(seeds)]
        for search in ("guided", "random")
    }
    part = random.Random(0).sample(space.configs, min(sample, len(space)))
    seconds, found = _autotune(spec, problem, part)
    shape = ",".join(f"{dim}={size}" for dim, size in problem.dims.items())
    command = f"tilewise bench wall {spec.name} -s {shape} --seeds {seeds} --sample {sample}"
    return {
        **header(command, "measured", name),
        "kernel": spec.name,
        "dims": dict(problem.dims),
        "dtype": problem.dtype,
        "toolchain": toolchain,
        "configs": len(space),
        "exhaustive_best_us": best_us,
        "margin": MARGIN,
        "searches": searches,
        "autotune": {
            "configs": len(part),
            "seconds": round(seconds, 2),
            "scaled_seconds": round(seconds * len(space) / len(part), 1),
            "best": found,
        },
    }


def _exhaustive_best(store: Store, scope: Scope, configs: int) -> float:
    trials = store.trials(scope)
    times = [t.time_us for t in trials if t.status is Status.CORRECT and t.verified and t.time_us]
    if len(trials) < configs or not times:
        shape = shape_text(scope.shape)
        raise NotFound(
            f"{len(trials)} of {configs} configs of {scope.kernel} {shape} are stored; "
            "run tilewise tune with --search exhaustive first"
        )
    return min(times)


def _search(
    spec: KernelSpec, problem: Problem, search: str, seed: int, goal_us: float, jobs: int | None
) -> dict[str, Any]:
    with _empty_cache(), open_store("sqlite://") as store:
        watch = _Stopwatch(goal_us, time.monotonic())
        with CudaDevice(jobs=jobs) as device:
            tuning = Tuning(spec, problem, device, store, budget=Budget(LIMIT), search=search, seed=seed, watcher=watch)
            with suppress(_Near):
                tuning.run()
    return {
        "seed": seed,
        "seconds": round(watch.seconds, 2),
        "evaluations": watch.evaluations,
        "best_us": round(watch.best_us, 3),
        "reached": watch.best_us <= goal_us,
    }


def _autotune(spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> tuple[float, dict[str, Any]]:
    """Return the seconds of the first launch under `triton.autotune` over these configs, and the config it chose."""
    import torch
    import triton

    from tilewise.tuner.measure.verify import Arguments

    if spec.grid is None:
        raise UsageError(f"triton.autotune tunes one function, but {spec.name} has several; choose another kernel")
    grid, options = spec.grid, spec.options()
    arguments = Arguments(spec, problem, device="cuda")
    offered = [
        triton.Config(
            {name: value for name, value in config.items() if name not in options},
            **{name: value for name, value in config.items() if name in options},
        )
        for config in configs
    ]
    with _empty_cache():
        tuned = triton.autotune(configs=offered, key=[])(resolve_function(spec, spec.function))
        began = time.monotonic()
        tuned[lambda meta: grid(meta, problem)](**arguments.tensors, **spec.scalars(problem))
        torch.cuda.synchronize()
        return time.monotonic() - began, tuned.best_config.all_kwargs()


@contextmanager
def _empty_cache() -> Iterator[None]:
    """Use an empty folder as Triton's disk cache, in this process and in those that it starts."""
    before = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TRITON_CACHE_DIR"]
            else:
                os.environ["TRITON_CACHE_DIR"] = before
