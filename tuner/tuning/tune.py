"""`tune`: one tuning as one call, for Python, the command line and the jobs of a server."""

from __future__ import annotations

from contextlib import ExitStack

from tilewise.db.records import Result, Shape
from tilewise.db.sql.sql_store import open_store
from tilewise.db.store import Store
from tilewise.deprecation import renamed_keywords
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.settings import read_settings
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.registry import open_device
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.tuning.loop import SEARCHES, Budget, Tuning, Watcher, default_trials
from tilewise.tuner.workers.supervisor import in_worker

__all__ = ["tune"]


@renamed_keywords(store="db", seconds="timeout")
def tune(
    spec: KernelSpec | str,
    dims: Shape,
    dtype: str = "float32",
    *,
    device: Device | str = "auto",
    trials: int | None = None,
    timeout: float | None = None,
    search: str = "guided",
    seed: int = 0,
    fresh: bool = False,
    since: int | None = None,
    strict: bool = False,
    db: Store | str | None = None,
    watcher: Watcher | None = None,
) -> Result:
    """Find the fastest config of a kernel for one problem on one device, and store every trial.

    - `spec`: a `KernelSpec`, a registered name, or `path/to/file.py:SPEC`.
    - `device`: an id such as `model:Ascend910B4`, or an open device. For a recorded landscape (`replay:FILE`),
      `spec` is the name of the recorded kernel, `dims` may be empty, and the dtype is the recorded one.
    - `trials`: the limit on the problem's trials, stored ones included (default: 200, or the whole space for
      `search="exhaustive"`).
    - `timeout`: seconds after which the search ends, once the current batch is done.
    - `fresh`: do not resume from stored trials.
    - `since`: with `fresh`, resume from trials that were stored since this mark of the store.
    - `strict`: refuse configs with warnings, such as a read outside a tensor whose value a mask throws away.
    - `db`: a store, a database URL, or None for the configured database.

    Raises `UsageError` or a subclass for an invalid request, `Unavailable` for a device that this machine lacks,
    `NothingFeasible` if no config runs correctly.
    """
    if search not in SEARCHES:
        raise UsageError(f"unknown search {search!r}; expected one of {', '.join(SEARCHES)}")
    if in_worker():
        raise UsageError(
            "tune() was called while a worker imported the script; put the call under __name__ == '__main__'"
        )
    budget = Budget(default_trials(search) if trials is None else trials, timeout)
    with ExitStack() as opened:
        if isinstance(device, str) and device.startswith("replay:"):
            device = opened.enter_context(open_device(device))
        loaded, problem = _problem(spec, dims, dtype, device)
        used_device = opened.enter_context(open_device(device)) if isinstance(device, str) else device
        store = db if isinstance(db, Store) else opened.enter_context(open_store(db or read_settings().database_url))
        tuning = Tuning(
            loaded,
            problem,
            used_device,
            store,
            budget=budget,
            search=search,
            seed=seed,
            fresh=fresh,
            since=since,
            strict=strict,
            watcher=watcher,
        )
        return tuning.run()


def _problem(spec: KernelSpec | str, dims: Shape, dtype: str, device: Device | str) -> tuple[KernelSpec, Problem]:
    """Load the spec and check the problem, before a device is opened: opening may take long."""
    if isinstance(device, ReplayDevice):
        return device.asked(spec if isinstance(spec, str) else spec.name, dims)
    loaded = registry.load(spec) if isinstance(spec, str) else registry.located(spec)
    return loaded, make_problem(loaded, dims, dtype)
