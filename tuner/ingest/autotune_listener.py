"""Trials recorded from triton's own autotuner, in programs that do not use tilewise.

Triton calls a listener for every autotuned key (`knobs.autotuning.listener`, triton 3.8 and later). Its trials are
stored under a separate toolchain, because another timer took the times, and without a verdict, because nobody checked
the outputs. They can be exported, and a search of the same kernel may start from them, but they never become a best.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tilewise.db.exchange.foreign.caches.triton_cache import split_key, trial_of
from tilewise.db.exchange.import_file import UNKNOWN_SOURCE
from tilewise.db.exchange.jsonfile import one_line
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.store import Store
from tilewise.deprecation import renamed_keywords
from tilewise.errors import TilewiseError, Unavailable
from tilewise.kernels.source import function_hash

__all__ = ["Harvest", "harvesting", "unavailable_reason"]

_SEARCH = "triton.autotune"
_DTYPE = "torch."


def unavailable_reason() -> str:
    """Return why nothing can be harvested here, or an empty string."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install 'tilewise[cuda]'"
    triton = importlib.import_module("triton")
    if hasattr(getattr(getattr(triton, "knobs", None), "autotuning", None), "listener"):
        return ""
    return (
        f"triton {triton.__version__} does not report what its autotuner finds, triton 3.8 does; from 3.4 on a program "
        "run with TRITON_CACHE_AUTOTUNING=1 leaves *.autotune.json files for tilewise import"
    )


@renamed_keywords(store="db")
@contextmanager
def harvesting(db: Store) -> Iterator[Harvest]:
    """Store what triton's autotuner finds in this process while the block runs. A previous listener is still called.

    Raises `Unavailable` if this triton has no listener, or torch is missing or sees no GPU.
    """
    if reason := unavailable_reason():
        raise Unavailable(reason)
    autotuning = importlib.import_module("triton").knobs.autotuning
    before = autotuning.listener
    harvest = Harvest(db, *_device(), then=before)
    autotuning.listener = harvest
    try:
        yield harvest
    finally:
        autotuning.listener = before


class Harvest:
    """The listener. It never raises, because it runs inside the user's program.

    `kept` counts trials by scope, in order of arrival. `missed` holds one-line reasons why something was not stored.
    """

    def __init__(self, store: Store, device: str, cores: int, toolchain: str, then: Any = None) -> None:
        self._store, self._then = store, then
        self._device, self._cores, self._toolchain = device, cores, toolchain
        self.kept: dict[str, tuple[Scope, int]] = {}
        self.missed: list[str] = []

    def __call__(self, **report: Any) -> None:
        try:
            if not report["cache_hit"]:  # a hit was reported when it was measured
                self._keep(report["fn"], report["key"], report["configs_timings"])
        except Exception as error:
            name = getattr(report.get("fn"), "__name__", "a kernel")
            self.missed.append(f"{name}: {one_line(error)}")
        if self._then is not None:
            self._then(**report)

    def _keep(self, function: Any, key: Sequence[Any], timings: Mapping[Any, Any]) -> None:
        scope = self._scope(function, key)
        now = datetime.now(UTC)
        trials = [trial_of(vars(config), times, now) for config, times in timings.items()]
        trials = [replace(trial, search=_SEARCH, why=_why(trial)) for trial in trials]
        self._store.record(scope, trials)
        self.kept[scope.key] = (scope, len(trials))

    def _scope(self, function: Any, key: Sequence[Any]) -> Scope:
        found = split_key(key, _key_names(function, key))
        variant = ",".join(f"{name}={value}" for name, value in found.rest.items())
        return Scope(
            Problem(function.__name__ + (f"[{variant}]" if variant else ""), found.dims, found.dtype),
            source_hash=_source_hash(function),
            device=self._device,
            clock=Clock.MEASURED,
            toolchain=self._toolchain,
            cores=self._cores,
        )


def _why(trial: Trial) -> str:
    return "triton's autotuner measured it; its output was not checked" if trial.status is Status.CORRECT else ""


def _source_hash(function: Any) -> str:
    try:
        return function_hash(function)
    except (TilewiseError, OSError, SyntaxError, TypeError):  # a function made in another one, typed in, or generated
        return UNKNOWN_SOURCE


def _key_names(function: Any, key: Sequence[Any]) -> list[str]:
    """Return names for the key's values: those of the autotuner that wraps the function, or else numbered ones."""
    wrapper = getattr(sys.modules.get(function.__module__), function.__name__, None)
    keys: list[str] = []
    while wrapper is not None and wrapper is not function:
        keys = list(getattr(wrapper, "keys", None) or keys)
        wrapper = getattr(wrapper, "fn", None)
    count = sum(1 for value in key if not (isinstance(value, str) and value.startswith(_DTYPE)))
    return keys if wrapper is function and len(keys) == count else [f"key{index}" for index in range(count)]


def _device() -> tuple[str, int, str]:
    """Return the name and core count of torch's GPU, and the toolchain. Raises `Unavailable` without torch or a GPU."""
    if importlib.util.find_spec("torch") is None:
        raise Unavailable("harvesting needs torch, to name the device: pip install 'tilewise[cuda]'")
    torch, triton = importlib.import_module("torch"), importlib.import_module("triton")
    if not torch.cuda.is_available():
        raise Unavailable(f"torch {torch.__version__} sees no GPU, so there is nothing to harvest here")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    toolchain = f"triton {triton.__version__} autotune, torch {torch.__version__}"
    return properties.name, properties.multi_processor_count, toolchain
