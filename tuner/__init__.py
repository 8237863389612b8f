"""How the fastest config is found; `tune` is the whole job as one call."""

from __future__ import annotations

from typing import Any

__all__ = ["tune"]


def __getattr__(name: str) -> Any:
    """The public names, imported when asked for: the search needs Optuna, look-ups do not."""
    if name == "tune":
        from tilewise.tuner.tuning import tune

        return tune
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
