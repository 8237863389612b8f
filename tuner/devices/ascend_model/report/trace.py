"""A config's timeline as Chrome trace events, which Perfetto opens: one lane per pipe of each core, arrows for flags.

The format is "Trace Event Format": complete events (`X`) on threads of a process, named by metadata (`M`), and flows
from a start (`s`) to a finish (`f`), which bind to the slices around them. Timestamps are microseconds of the part's
clock from the start of a program. Each launch is a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewise.tuner.devices.ascend_model.clock.core import PIPES, core_name
from tilewise.tuner.devices.ascend_model.clock.recording import Event
from tilewise.tuner.devices.ascend_model.report.analysis import Analysis, LaunchCourse

__all__ = ["LANES", "trace_events"]

LANES = {
    "S": "scalar unit",
    "V": "vector pipe",
    "MTE2": "inward transfers",
    "MTE3": "outward transfers",
    "MTE1": "operand loads",
    "M": "cube pipe",
    "FIX": "result stores",
}
"""Names of the pipes."""


def trace_events(analysis: Analysis) -> dict[str, Any]:
    """Return the JSON object of a trace file. Waits, which overlap, are left out: a lane shows its pipe's work."""
    events = [event for process, launch in enumerate(analysis.launches) for event in _launch(launch, process)]
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _launch(launch: LaunchCourse, process: int) -> Iterator[dict[str, Any]]:
    yield _named("process_name", f"{launch.name}: one program", pid=process, tid=0)
    for core, pipe in launch.recording.lanes:
        lane = _lane(core, PIPES.index(pipe))
        label = f"{LANES[pipe]} ({pipe})"
        if len(launch.recording.cores) > 1:
            label = f"{core_name(core)}: {label}"
        yield _named("thread_name", label, pid=process, tid=lane)
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": lane, "args": {"sort_index": lane}}
    recording = launch.recording
    on_path = {id(event) for event, _ in recording.critical_path()}
    for event in recording.events:
        if event.work:
            yield _slice(launch, event, process, critical=id(event) in on_path)
    for index, flow in enumerate(recording.flows):
        source, target = recording.events[flow.source], recording.events[flow.target]
        shared = {"name": f"flag {flow.event}", "cat": "flag", "id": f"{process}.{index}", "pid": process}
        leaving = (source.start + source.end) / 2  # inside the slice that it binds to
        yield {"ph": "s", "tid": _lane(source.core, source.pipe), "ts": _us(launch, leaving), **shared}
        yield {"ph": "f", "bp": "e", "tid": _lane(target.core, target.pipe), "ts": _us(launch, target.start), **shared}


def _named(kind: str, name: str, *, pid: int, tid: int) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(launch: LaunchCourse, event: Event, process: int, *, critical: bool) -> dict[str, Any]:
    operation = launch.recording.names[event.op]
    arguments: dict[str, Any] = {"operation": event.op, "critical": critical}
    if place := launch.place(event):
        arguments |= {"line": str(place), "source": place.text}
    return {
        "ph": "X",
        "name": operation.removeprefix("hivm.hir."),
        "cat": PIPES[event.pipe],
        "pid": process,
        "tid": _lane(event.core, event.pipe),
        "ts": _us(launch, event.start),
        "dur": _us(launch, event.end - event.start),
        "args": arguments,
    }


def _lane(core: int, pipe: int) -> int:
    return core * len(PIPES) + pipe


def _us(launch: LaunchCourse, cycles: float) -> float:
    return round(cycles / launch.clock_ghz / 1e3, 6)
