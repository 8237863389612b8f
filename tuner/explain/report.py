"""Reports on stored winners of modelled parts, made in a process of their own: a server must not wait for compilers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.db.records import Clock, Scope
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import Config
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.explain.listing import SourceLine, listing
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.workers.worker import Worker, WorkerError

__all__ = ["Report", "make", "report", "unexplained_reason"]

_ENTRY = "tilewise.tuner.explain.report:make"
_SECONDS = 120.0
_NICENESS = 10
_LONGEST_TRACE = 16 << 20
"""Bytes of a trace; one that is longer is left out, since browsers would take seconds to read it."""


@dataclass(frozen=True, slots=True)
class Report:
    """The JSON object of `tilewise explain` without paths of files; the kernel's source with the time of each line; and
    the course of one program, as an SVG and as a trace (empty if it is too long)."""

    explanation: Mapping[str, Any]
    source: Sequence[SourceLine]
    timeline: str
    trace: str

    @property
    def size(self) -> int:
        """Bytes in memory, nearly."""
        return len(self.timeline) + len(self.trace) + 400 * len(self.source) + 20_000


def unexplained_reason(scope: Scope) -> str:
    """Return why this machine cannot explain a scope's results; empty if it can."""
    if scope.clock is not Clock.MODELLED or scope.device not in PARTS:
        return "only results of modelled parts are explained"
    if reason := toolchain.unavailable_reason():
        return f"the server {reason}"
    if scope.kernel not in registry.names():
        return "the server does not know the kernel"
    spec = registry.load(scope.kernel)
    if source_hash(spec) != scope.source_hash:
        return "the server has another version of the kernel's source; tune it again"
    here = toolchain.identity(PARTS[scope.device])
    here = toolchain.with_cube(here) if spec.matrix_dtype else here
    if here != scope.toolchain:
        return f"it was tuned with {scope.toolchain}, but the server has {here}; tune it again"
    return ""


def report(url: str, scope: Scope, config: Config) -> Report:
    """Return the report on a config of a scope in the store at `url`; raise `Unavailable` if there can be none."""
    worker = Worker(_ENTRY, env={"TRITON_INTERPRET": None})
    try:
        made: Report = worker.call(url, registry.place(scope.kernel), scope, dict(config), timeout=_SECONDS)
        return made
    except WorkerError as error:
        raise Unavailable(f"cannot explain it: {error}") from error
    finally:
        worker.close()


def make(url: str, kernel: str, scope: Scope, config: Config) -> Report:
    """Make the report in the worker; raise `Unavailable` if it was tuned with another toolchain than this one."""
    from tilewise.db.sql.sql_store import open_store
    from tilewise.tuner.devices.ascend_model.device import ModelDevice
    from tilewise.tuner.devices.ascend_model.report.drawing import drawing
    from tilewise.tuner.devices.ascend_model.report.trace import trace_events
    from tilewise.tuner.explain.explain import explain

    os.setpriority(os.PRIO_PROCESS, 0, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
    spec = registry.load(kernel)
    problem = make_problem(spec, scope.shape, scope.dtype)
    with open_store(url, read_only=True) as store, ModelDevice(scope.device, jobs=1) as device:
        if (here := device.scope(spec, problem).toolchain) != scope.toolchain:
            raise Unavailable(f"it was tuned with {scope.toolchain}, but this machine has {here}; tune it again")
        body = explain(device, spec, problem, config, store.trials(scope))
        found = device.analyse(spec, problem, config)
        trace = json.dumps(trace_events(found), separators=(",", ":"))
        return Report(
            _without_paths(body), listing(found.lines()), drawing(found), trace if len(trace) <= _LONGEST_TRACE else ""
        )


def _without_paths(body: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the paths of files on this machine, which are no reader's business."""
    findings = [
        {name: value for name, value in each.items() if name not in ("file", "cause_file")}
        for each in body.get("findings", [])
    ]
    return {**body, "findings": findings}
