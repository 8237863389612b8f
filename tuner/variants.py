"""Which way of doing a kernel's work is the faster at a shape: the best stored trial of each variant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewise.db.records import Status, Trial

__all__ = ["VARIANT", "crossover", "variants"]

VARIANT = "VARIANT"
"""The parameter by which a kernel's spec names its variants."""


def variants(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """The best correct trial of each variant: `variant`, `config`, `time_us`, `verified` and `ratio` to the best of
    all, the fastest first. Trials of a kernel without variants give an empty list."""
    best: dict[str, Trial] = {}
    for trial in trials:
        name = trial.config.get(VARIANT)
        if trial.status is not Status.CORRECT or trial.time_us is None or name is None:
            continue
        held = best.get(str(name))
        if held is None or held.time_us is None or trial.time_us < held.time_us:
            best[str(name)] = trial
    timed = sorted((trial.time_us or 0.0, name) for name, trial in best.items())
    return [
        {
            "variant": name,
            "config": dict(best[name].config),
            "time_us": time_us,
            "verified": best[name].verified,
            "ratio": round(time_us / timed[0][0], 4),
        }
        for time_us, name in timed
    ]


def crossover(rows: list[dict[str, Any]]) -> str:
    """In words, such as "one_load 7.97 us; looped takes 10.33x"; empty where fewer than two variants were tried."""
    if len(rows) < 2:
        return ""
    first, *others = rows
    rest = ", ".join(f"{row['variant']} takes {row['ratio']:.2f}x" for row in others)
    return f"{first['variant']} {first['time_us']:.2f} us; {rest}"
