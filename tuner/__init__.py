"""Tuning, look-ups and launches: `tune` finds the fastest config of a problem, `tuned` launches with it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewise.tuner.runtime.tuned import tuned
    from tilewise.tuner.tuning.tune import tune

__all__ = ["tune", "tuned"]

_HOMES = {"tune": "tilewise.tuner.tuning.tune", "tuned": "tilewise.tuner.runtime.tuned"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the search needs Optuna, look-ups do not."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
