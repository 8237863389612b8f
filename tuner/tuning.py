"""`tune`: the whole job as one call."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from tilewise.db.records import Result
from tilewise.db.sql_store import open_store
from tilewise.db.store import Store
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec
from tilewise.settings import read_settings
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.catalogue import open_device
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.problem import make_problem
from tilewise.tuner.search import SEARCHES, Budget, Tuning, Watcher, default_trials
from tilewise.tuner.worker import in_worker

__all__ = ["tune"]


def tune(
    spec: KernelSpec | str,
    dims: Mapping[str, int],
    dtype: str = "float32",
    *,
    device: Device | str = "auto",
    trials: int | None = None,
    seconds: float | None = None,
    search: str = "guided",
    seed: int = 0,
    fresh: bool = False,
    store: Store | str | None = None,
    watcher: Watcher | None = None,
) -> Result:
    """Find the fastest config of a kernel for one problem on one device, and keep every trial.

    `spec` is a `KernelSpec`, a registered name, or `path/to/file.py:SPEC`. `trials` counts stored trials of the same
    problem too (default: 60, or the whole space for `search="exhaustive"`); `seconds` ends the search at the first
    batch after it. Of a recorded landscape (`device="replay:FILE"`) `spec` is the name of what the file records; `dims`
    may be empty, and dtype is what it was. `store` is a store, a database URL, or None for the configured one.

    Raises `UsageError` (and its kinds) for a request that makes no sense, `Unavailable` for a device that is not
    here, `NothingFeasible` where no config runs correctly.
    """
    if search not in SEARCHES:
        raise UsageError(f"unknown search {search!r}; expected one of {', '.join(SEARCHES)}")
    if in_worker():
        raise UsageError(
            "tune() was called while a worker imported the script; put the call under __name__ == '__main__'"
        )
    budget = Budget(default_trials(search) if trials is None else trials, seconds)
    with ExitStack() as opened:
        if isinstance(device, str) and device.startswith("replay:"):
            device = opened.enter_context(open_device(device))
        if isinstance(device, ReplayDevice):
            loaded, problem = device.asked(spec if isinstance(spec, str) else spec.name, dims)
        else:
            loaded = registry.load(spec) if isinstance(spec, str) else registry.located(spec)
            problem = make_problem(loaded, dims, dtype)
        used_device = opened.enter_context(open_device(device)) if isinstance(device, str) else device
        if isinstance(store, Store):
            used_store = store
        else:
            used_store = opened.enter_context(open_store(store or read_settings().database_url))
        return Tuning(
            loaded,
            problem,
            used_device,
            used_store,
            budget=budget,
            search=search,
            seed=seed,
            fresh=fresh,
            watcher=watcher,
        ).run()
