"""Two configs of a problem side by side, from what is stored of them and what the prior says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.db.records import Scope, Trial
from tilewise.errors import TilewiseError
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.prior.penalties import penalties
from tilewise.tuner.tuning.evidence import PIPE_NAMES

__all__ = ["Comparison", "PipePair", "Side", "comparison", "penalties_of", "pipe_pairs"]

_LONGEST = 200
_FACTS = {
    "programs": "programs",
    "cores": "cores",
    "waves": "waves",
    "tail_rows": "tail rows per program",
    "trips": "trips of the inner loop",
    "bound_by": "busiest pipe",
    "double_buffered": "double-buffered",
    "gb_s": "GB/s of least traffic",
    "tflop_s": "TFLOP/s",
    "share_of_peak": "share of the peak",
}
"""Facts that come first, by their words; others follow under their stored names."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two trials, by its number, with the penalties of the prior that are above 1."""

    number: int
    trial: Trial
    penalties: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of both; None is unknown."""

    name: str
    one: str | None
    other: str | None

    @property
    def differs(self) -> bool:
        return self.one != self.other


@dataclass(frozen=True, slots=True)
class PipePair:
    """The busy time of a pipe of a modelled core in two configs, and as shares of the longer one's whole time in
    percent. The second is None where only one is known."""

    name: str
    one_us: float | None
    other_us: float | None
    one_percent: float
    other_percent: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two sides, `ratio` how many times as long the second takes, and every figure that both or one of them has."""

    one: Side
    other: Side
    ratio: float | None
    config: Sequence[Line]
    facts: Sequence[Line]
    penalties: Sequence[Line]
    pipes: Sequence[PipePair]


def comparison(scope: Scope, spec: KernelSpec | None, one: tuple[int, Trial], other: tuple[int, Trial]) -> Comparison:
    """Compare two numbered trials of a scope. `spec` is the kernel's, if it is registered."""
    left, right = (Side(number, trial, penalties_of(scope, spec, trial)) for number, trial in (one, other))
    first, second = left.trial, right.trial
    return Comparison(
        one=left,
        other=right,
        ratio=second.time_us / first.time_us if first.time_us and second.time_us else None,
        config=_lines({n: str(v) for n, v in first.config.items()}, {n: str(v) for n, v in second.config.items()}),
        facts=_lines(_facts(first), _facts(second)),
        penalties=_lines(
            *({name: f"{factor:.3f}" for name, factor in side.penalties.items()} for side in (left, right))
        ),
        pipes=pipe_pairs(first, second),
    )


def penalties_of(scope: Scope, spec: KernelSpec | None, trial: Trial) -> dict[str, float]:
    """Return the penalties above 1 that the prior gives a trial's config, the largest first; empty if it gives none."""
    if spec is None:
        return {}
    try:
        found = penalties(spec, scope.problem, trial.config, known_target(scope.device, scope.cores))
    except (TilewiseError, ArithmeticError, LookupError, TypeError, ValueError):  # a config of another source
        return {}
    large = {name: factor for name, factor in found.items() if 1.0005 < factor < math.inf}
    return dict(sorted(large.items(), key=lambda item: -item[1]))


def pipe_pairs(one: Trial | None, other: Trial | None) -> list[PipePair]:
    """Return the pipes that either trial's facts tell of; imported facts may be of any kind."""
    times = [_pipes(trial) for trial in (one, other)]
    whole = max((trial.time_us for trial in (one, other) if trial and trial.time_us), default=0.0)
    if not whole:
        return []
    names = dict.fromkeys(name for each in times for name in each)
    one_us, other_us = times
    return [
        PipePair(
            PIPE_NAMES.get(name, name),
            one_us.get(name),
            other_us.get(name),
            100 * one_us.get(name, 0.0) / whole,
            100 * other_us.get(name, 0.0) / whole,
        )
        for name in names
    ]


def _pipes(trial: Trial | None) -> dict[str, float]:
    busy = trial.facts.get("pipes_us") if trial else None
    return {str(name): us for name, us in busy.items() if _is_time(us)} if isinstance(busy, dict) else {}


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _lines(one: Mapping[str, str], other: Mapping[str, str]) -> list[Line]:
    return [Line(name, one.get(name), other.get(name)) for name in dict.fromkeys([*one, *other])]


def _facts(trial: Trial) -> dict[str, str]:
    """Return the facts that are one figure or word each, in words."""
    plain = {name: _shown(value) for name, value in trial.facts.items() if isinstance(value, bool | int | float | str)}
    first = {words: plain.pop(name) for name, words in _FACTS.items() if name in plain}
    if isinstance(bits := trial.facts.get("on_chip_bits"), dict):
        sizes = [bits.get(name) for name in ("required", "available")]
        if all(map(_is_time, sizes)):
            first["on-chip memory"] = f"{sizes[0] / 8192:.0f} of {sizes[1] / 8192:.0f} KiB"  # type: ignore[operator]
    return first | {name.replace("_", " "): value for name, value in sorted(plain.items())}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:_LONGEST]
