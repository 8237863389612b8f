"""How the fastest config is found, and launched with; `tune` and `tuned` are the whole of it as one call each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewise.tuner.runtime.tuned import tuned
    from tilewise.tuner.tuning.tune import tune

__all__ = ["tune", "tuned"]

_HOMES = {"tune": "tilewise.tuner.tuning.tune", "tuned": "tilewise.tuner.runtime.tuned"}


def __getattr__(name: str) -> Any:
    """The public names, imported when asked for: the search needs Optuna, look-ups do not."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
