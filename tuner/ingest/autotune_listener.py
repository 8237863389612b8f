"""What triton's own autotuner finds in a program that knows nothing of tilewise.

Triton tells a listener of every autotuned key (`knobs.autotuning.listener`, triton 3.8 and later). What it measured is
kept under a toolchain of its own, because another timer took the times, and without a verdict, because nobody checked
the results: it can be exported, and a search of the same kernel may start from it, but it is never a best.
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
    """Why nothing can be harvested here, or an empty text."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install 'tilewise[cuda]'"
    triton = importlib.import_module("triton")
    if hasattr(getattr(getattr(triton, "knobs", None), "autotuning", None), "listener"):
        return ""
    return (
        f"triton {triton.__version__} does not tell what its autotuner finds, triton 3.8 does; from 3.4 on a program "
        "run with TRITON_CACHE_AUTOTUNING=1 leaves *.autotune.json files for tilewise import"
    )


@renamed_keywords(store="db")
@contextmanager
def harvesting(db: Store) -> Iterator[Harvest]:
    """Keep, while the block runs, what triton's autotuner finds in this process; another listener goes on hearing too.

    Raises `Unavailable` where triton does not tell.
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
    """The listener. It never raises: the program it listens to is somebody else's.

    `kept` counts trials by scope, in the order they came; `missed` are one-line reasons why something was not kept.
    """

    def __init__(self, store: Store, device: str, cores: int, toolchain: str, then: Any = None) -> None:
        self._store, self._then = store, then
        self._device, self._cores, self._toolchain = device, cores, toolchain
        self.kept: dict[str, tuple[Scope, int]] = {}
        self.missed: list[str] = []

    def __call__(self, **told: Any) -> None:
        try:
            if not told["cache_hit"]:  # it was told when it was measured
                self._keep(told["fn"], told["key"], told["configs_timings"])
        except Exception as error:
            name = getattr(told.get("fn"), "__name__", "a kernel")
            self.missed.append(f"{name}: {one_line(error)}")
        if self._then is not None:
            self._then(**told)

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
    except (TilewiseError, OSError, SyntaxError, TypeError):  # made in a function, typed in or generated
        return UNKNOWN_SOURCE


def _key_names(function: Any, key: Sequence[Any]) -> list[str]:
    """The names of the key's values: from the autotuner that wraps the function in its module, else by number."""
    wrapper = getattr(sys.modules.get(function.__module__), function.__name__, None)
    keys: list[str] = []
    while wrapper is not None and wrapper is not function:
        keys = list(getattr(wrapper, "keys", None) or keys)
        wrapper = getattr(wrapper, "fn", None)
    count = sum(1 for value in key if not (isinstance(value, str) and value.startswith(_DTYPE)))
    return keys if wrapper is function and len(keys) == count else [f"key{place}" for place in range(count)]


def _device() -> tuple[str, int, str]:
    """Name and core count of the GPU that torch uses, and the toolchain. Raises `Unavailable`."""
    if importlib.util.find_spec("torch") is None:
        raise Unavailable("harvesting needs torch, which names the device: pip install 'tilewise[cuda]'")
    torch, triton = importlib.import_module("torch"), importlib.import_module("triton")
    if not torch.cuda.is_available():
        raise Unavailable(f"torch {torch.__version__} sees no GPU, so that no program tunes anything here")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    toolchain = f"triton {triton.__version__} autotune, torch {torch.__version__}"
    return properties.name, properties.multi_processor_count, toolchain
