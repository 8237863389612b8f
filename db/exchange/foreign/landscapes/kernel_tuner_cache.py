"""Trials as a Kernel Tuner cache, which Kernel Tuner's simulation mode searches without a device.

Times are in milliseconds; a failure is a word in place of a time. The format has no field for verification, toolchain
or source.
"""

from __future__ import annotations

import json
from typing import Any

from tilewise.db.records import Scope, Status, Trial
from tilewise.db.store import Store
from tilewise.errors import NotFound

__all__ = ["encode_cache"]

_FAILURES = {
    Status.CONSTRAINTS: "InvalidConfig",
    Status.COMPILE: "CompilationFailedConfig",
    Status.UNMODELLED: "InvalidConfig",
}
"""A config that a model could not judge has no time, and did not fail. Any other failure happened at run time or gave
wrong results, which Kernel Tuner treats alike."""

_NOT_KEPT = ("verification_time", "strategy_time", "framework_time")


def encode_cache(store: Store, scope: Scope) -> bytes:
    """Return the scope's current trials as a cache. Raises `NotFound` if none of them has a time."""
    trials = store.trials(scope)
    if not any(trial.status is Status.CORRECT for trial in trials):
        raise NotFound(f"no trial of {scope.problem} has a time on {scope.device}")
    names = list(trials[0].config)
    document = {
        "device_name": scope.device,
        "kernel_name": scope.kernel,
        "problem_size": list(scope.dims.values()),
        "tune_params_keys": names,
        "tune_params": {name: list(dict.fromkeys(trial.config[name] for trial in trials)) for name in names},
        "objective": "time",
        "cache": {",".join(str(trial.config[name]) for name in names): _record(trial, names) for trial in trials},
    }
    return json.dumps(document, indent=0, allow_nan=False).encode()


def _record(trial: Trial, names: list[str]) -> dict[str, Any]:
    compiling = trial.facts.get("compile_s")
    compile_ms = compiling * 1000 if isinstance(compiling, int | float) else 0.0
    record: dict[str, Any] = {name: trial.config[name] for name in names}
    if trial.status is Status.CORRECT and trial.time_us is not None:
        kept = trial.facts.get("times_us")
        record["time"] = trial.time_us / 1000
        record["times"] = [time / 1000 for time in (kept if isinstance(kept, list) and kept else [trial.time_us])]
    else:
        record["time"] = _FAILURES.get(trial.status, "RuntimeFailedConfig")
    record |= {"compile_time": compile_ms, "benchmark_time": max(trial.seconds * 1000 - compile_ms, 0.0)}
    return record | dict.fromkeys(_NOT_KEPT, 0.0) | {"timestamp": trial.created.isoformat()}
