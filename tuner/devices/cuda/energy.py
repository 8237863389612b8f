"""The energy of a launch on an NVIDIA GPU, from the driver's counter of the whole board.

The counter moves every few tens of milliseconds only. So a kernel is launched again and again from a CUDA graph, which
leaves next to no gaps, and the counter is read at two of its steps, at least `SECONDS` apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewise.tuner.devices.measured.accelerator import Job

__all__ = ["SECONDS", "Counter", "energy_per_run_uj"]

SECONDS = 1.0
"""Least time between the two readings. docs/results/h200-energy.json tells how far measurements of a config differ."""

_SETTLE_SECONDS = 0.3
"""Launches before the first reading, in which clocks and power rise."""

_GRAPH_US = 2000.0
"""Time that one replay is to take: long beside its start, short beside a step of the counter."""

_MOST_RUNS = 512
"""Runs in one graph at most."""

_PATIENCE = 5.0
"""Seconds to wait for the counter to move."""

Counter = Callable[[], float]
"""Returns the millijoules that the board has taken since the driver was loaded."""


def energy_per_run_uj(job: Job, time_us: float, counter: Counter) -> float | None:
    """Return the microjoules of one run of a job that takes about `time_us`.

    What resets the job's outputs runs before each run and counts. The board's idle power counts too, and caches stay as
    the last run left them. None if the counter stands still.
    """
    import torch

    runs = max(1, min(_MOST_RUNS, int(_GRAPH_US / time_us)))
    replay = _graph(job, runs).replay
    stream = torch.cuda.current_stream()
    _keep_busy(replay, stream, _SETTLE_SECONDS)
    first = _step(replay, stream, counter)
    replays = _keep_busy(replay, stream, SECONDS)
    last = _step(replay, stream, counter)
    if first is None or last is None:
        return None
    return (last.energy_mj - first.energy_mj) * 1e3 / ((replays + last.replays) * runs)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A reading of the counter just after it moved, and the replays that were waited for meanwhile."""

    energy_mj: float
    replays: int


def _step(replay: Callable[[], None], stream: Any, counter: Counter) -> _Reading | None:
    """Replay until the counter moves; None if it does not."""
    before, replays, end = counter(), 0, time.monotonic() + _PATIENCE
    while (now := counter()) == before:
        if time.monotonic() > end:
            return None
        replay()
        stream.synchronize()
        replays += 1
    return _Reading(now, replays)


def _keep_busy(replay: Callable[[], None], stream: Any, seconds: float) -> int:
    """Replay for some seconds, two replays ahead of the device, and return how many were done."""
    replays, end, last = 0, time.monotonic() + seconds, None
    while time.monotonic() < end:
        replay()
        event = stream.record_event()
        if last is not None:
            last.synchronize()
        last, replays = event, replays + 1
    stream.synchronize()
    return replays


def _graph(job: Job, runs: int) -> Any:
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(runs):
            if job.before is not None:
                job.before()
            job.run()
    return graph
