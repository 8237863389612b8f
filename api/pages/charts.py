"""The data of a problem's charts as plain values, for the page's script and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewise.db.records import Status, Trial, Value

__all__ = ["Course", "HeatMap", "Spread", "course", "heat_map", "parameters", "spreads"]

_SHADES = 10
"""Steps of the heat map's scale; the style sheet has one class per step."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Time against one parameter: one point per trial, and the best time of each value. `places` holds the index of
    each trial's value in `labels`."""

    name: str
    labels: tuple[str, ...]
    places: tuple[int, ...]
    times_us: tuple[float, ...]
    best_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Course:
    """The course of a search: each timed evaluation, and the best time up to it."""

    ordinals: tuple[int, ...]
    times_us: tuple[float, ...]
    best_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """The best time of a pair of values. `shade` goes from 0, the fastest, to 9. Both are None if nothing ran."""

    time_us: float | None = None
    shade: int | None = None
    failed: int = 0


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The best time by two parameters, with one row of cells per value of the second."""

    across: str
    down: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def parameters(trials: Sequence[Trial]) -> list[str]:
    """Return the parameters with more than one tried value, in the kernel's order."""
    names = list(dict.fromkeys(name for trial in trials for name in trial.config))
    return [name for name in names if len(_values(trials, name)) > 1]


def spreads(trials: Sequence[Trial]) -> list[Spread]:
    return [_spread(_timed(trials), name) for name in parameters(_timed(trials))]


def course(trials: Sequence[Trial]) -> Course:
    drawn = sorted((t.ordinal, t.time_us) for t in _timed(trials) if t.ordinal is not None and t.time_us is not None)
    best: list[float] = []
    for _, time_us in drawn:
        best.append(min(time_us, best[-1] if best else time_us))
    return Course(tuple(n for n, _ in drawn), tuple(t for _, t in drawn), tuple(best))


def heat_map(trials: Sequence[Trial], across: str, down: str) -> HeatMap:
    """Return the best times by two parameters. Raises `KeyError` if no trial has one of them."""
    columns, rows = _values(trials, across), _values(trials, down)
    if not columns or not rows:
        raise KeyError(down if columns else across)
    best: dict[tuple[Value, Value], float] = {}
    failed: dict[tuple[Value, Value], int] = {}
    for trial in trials:
        pair = trial.config[across], trial.config[down]
        if trial.status is Status.CORRECT and trial.time_us:
            best[pair] = min(trial.time_us, best.get(pair, trial.time_us))
        else:
            failed[pair] = failed.get(pair, 0) + 1
    shades = _shades(best.values())

    def cell(pair: tuple[Value, Value]) -> Cell:
        time_us = best.get(pair)
        return Cell(time_us, None if time_us is None else shades[time_us], failed.get(pair, 0))

    shown = tuple((str(row), tuple(cell((column, row)) for column in columns)) for row in rows)
    return HeatMap(across, down, tuple(map(str, columns)), shown)


def _spread(timed: Sequence[Trial], name: str) -> Spread:
    values = _values(timed, name)
    points = sorted((values.index(t.config[name]), t.time_us or 0.0) for t in timed)
    best: dict[int, float] = {}
    for index, time_us in points:
        best.setdefault(index, time_us)  # the points of a value are in order of time
    return Spread(
        name,
        tuple(map(str, values)),
        tuple(index for index, _ in points),
        tuple(time_us for _, time_us in points),
        tuple(best.values()),
    )


def _timed(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.status is Status.CORRECT and trial.time_us]


def _values(trials: Sequence[Trial], name: str) -> list[Value]:
    """Return the tried values: numbers by size, then others by name."""
    found = {trial.config[name] for trial in trials if name in trial.config}
    return sorted(found, key=lambda value: (isinstance(value, str), str(value) if isinstance(value, str) else value))


def _shades(times: Iterable[float]) -> dict[float, int]:
    """Return each time's shade, by rank, so that one slow corner does not make all others look alike."""
    ordered = sorted(set(times))
    return {time: _SHADES * rank // len(ordered) for rank, time in enumerate(ordered)}
