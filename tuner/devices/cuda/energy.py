"""The energy of a launch on an NVIDIA GPU, from the driver's counter of the whole board.

On an H200 the counter moves ten times a second, and reading it takes 4 ms. So a kernel is launched again and again from
a CUDA graph, in bursts of which the device always has one to go on with, and the counter is read after each. Two
readings count, each from just after a step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from tilewise.tuner.devices.measured.accelerator import Job

__all__ = ["SECONDS", "Counter", "energy_per_run_uj"]

SECONDS = 1.0
"""Least time between the two readings."""

_SETTLE_SECONDS = 0.5
"""Launches before the first reading, in which clocks and power rise."""

_GRAPH_US = 2000.0
"""Time that one replay of the graph is to take: long beside its start."""

_BURST_US = 10_000.0
"""Time that a burst is to take: long beside a reading, short beside a step of the counter."""

_MOST_RUNS = 512
"""Runs in one graph at most."""

_PATIENCE = 5.0
"""Seconds after which a counter that has not moved is taken to stand still."""

Counter = Callable[[], float]
"""Returns the millijoules that the board has taken since the driver was loaded."""


def energy_per_run_uj(job: Job, time_us: float, counter: Counter) -> float | None:
    """Return the microjoules of one run of a job that takes about `time_us`; None if the counter stands still.

    What resets the job's outputs runs before each run and counts. The board's idle power counts too, and caches stay as
    the last run left them.
    """
    import torch

    runs = max(1, min(_MOST_RUNS, int(_GRAPH_US / time_us)))
    burst = math.ceil(_BURST_US / (runs * time_us))
    replay, stream = _graph(job, runs).replay, torch.cuda.current_stream()
    begin = moved = time.monotonic()
    bursts, known, first, before = 0, counter(), None, stream.record_event()
    while True:
        for _ in range(burst):
            replay()
        bursts += 1
        event = stream.record_event()
        before.synchronize()
        before, energy_mj, now = event, counter(), time.monotonic()
        if energy_mj == known:
            if now - moved > _PATIENCE:
                return None
            continue
        known, moved = energy_mj, now
        if first is None and now - begin >= _SETTLE_SECONDS:
            first = (energy_mj, bursts, now)
        elif first is not None and now - first[2] >= SECONDS:
            return (energy_mj - first[0]) * 1e3 / ((bursts - first[1]) * burst * runs)


def _graph(job: Job, runs: int) -> Any:
    """Return a CUDA graph of some runs."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(runs):
            if job.before is not None:
                job.before()
            job.run()
    return graph
