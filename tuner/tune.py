"""`tune`: the whole job as one call."""

from __future__ import annotations

from collections.abc import Mapping

from tilewise.db.records import Result
from tilewise.db.sql_store import open_store
from tilewise.db.store import Store
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec
from tilewise.settings import read_settings
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.catalogue import open_device
from tilewise.tuner.problem import make_problem
from tilewise.tuner.search import DEFAULT_TRIALS, SEARCHES, Budget, Tuning, Watcher

__all__ = ["tune"]


def tune(
    spec: KernelSpec | str,
    dims: Mapping[str, int],
    dtype: str = "float32",
    *,
    device: Device | str = "auto",
    trials: int | None = DEFAULT_TRIALS,
    seconds: float | None = None,
    search: str = "guided",
    seed: int = 0,
    fresh: bool = False,
    store: Store | str | None = None,
    watcher: Watcher | None = None,
) -> Result:
    """Find the fastest config of a kernel for one problem on one device, and keep every trial.

    `spec` is a `KernelSpec`, a registered name, or `path/to/file.py:SPEC`. `trials` counts stored trials of the same
    problem too (None: the whole space, which `search="exhaustive"` always means); `seconds` ends the search at the
    first batch after it. `store` is a store, a database URL, or None for the configured one.

    Raises `UsageError` (and its kinds) for a request that makes no sense, `Unavailable` for a device that is not
    here, `NothingFeasible` where no config runs correctly.
    """
    if search not in SEARCHES:
        raise UsageError(f"unknown search {search!r}; expected one of {', '.join(SEARCHES)}")
    loaded = registry.load(spec) if isinstance(spec, str) else spec
    problem = make_problem(loaded, dims, dtype)
    budget = Budget(trials, seconds)
    opened_device = open_device(device) if isinstance(device, str) else None
    opened_store = None if isinstance(store, Store) else open_store(store or read_settings().database_url)
    try:
        tuning = Tuning(
            loaded,
            problem,
            opened_device or device,  # type: ignore[arg-type]
            opened_store or store,  # type: ignore[arg-type]
            budget=budget,
            search=search,
            seed=seed,
            fresh=fresh,
            watcher=watcher,
        )
        return tuning.run()
    finally:
        if opened_device:
            opened_device.close()
        if opened_store:
            opened_store.close()
