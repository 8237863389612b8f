"""The figures behind a problem's charts, as plain values: what the page's script draws and its tables show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewise.db.records import Status, Trial, Value

__all__ = ["Course", "HeatMap", "Spread", "course", "heat_map", "parameters", "spreads"]

_SHADES = 10
"""Steps of the heat map's scale; the style sheet has one class a step."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Time against one parameter: a point a trial, `places` being the index of its value in `labels`, and the best
    time of each value."""

    name: str
    labels: tuple[str, ...]
    places: tuple[int, ...]
    times_us: tuple[float, ...]
    best_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Course:
    """The search's course: each timed evaluation, and the best so far after it."""

    ordinals: tuple[int, ...]
    times_us: tuple[float, ...]
    best_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """The best time of two values together; `shade` goes from 0, the fastest, to 9. Both None where nothing ran."""

    time_us: float | None = None
    shade: int | None = None
    failed: int = 0


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The best time by two parameters; a row of cells for each value of the second."""

    across: str
    down: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def parameters(trials: Sequence[Trial]) -> list[str]:
    """The parameters of which more than one value was tried, in the kernel's order."""
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
    """Raises `KeyError` where no trial has such a parameter."""
    columns, rows = _values(trials, across), _values(trials, down)
    if not columns or not rows:
        raise KeyError(down if columns else across)
    best: dict[tuple[Value, Value], float] = {}
    failed: dict[tuple[Value, Value], int] = {}
    for trial in trials:
        place = trial.config[across], trial.config[down]
        if trial.status is Status.CORRECT and trial.time_us:
            best[place] = min(trial.time_us, best.get(place, trial.time_us))
        else:
            failed[place] = failed.get(place, 0) + 1
    ranks = _shades(best.values())

    def cell(place: tuple[Value, Value]) -> Cell:
        time_us = best.get(place)
        return Cell(time_us, None if time_us is None else ranks[time_us], failed.get(place, 0))

    shown = tuple((str(row), tuple(cell((column, row)) for column in columns)) for row in rows)
    return HeatMap(across, down, tuple(map(str, columns)), shown)


def _spread(timed: Sequence[Trial], name: str) -> Spread:
    values = _values(timed, name)
    points = sorted((values.index(t.config[name]), t.time_us or 0.0) for t in timed)
    best: dict[int, float] = {}
    for place, time_us in points:
        best.setdefault(place, time_us)  # the points are in order of time within a place
    return Spread(
        name,
        tuple(map(str, values)),
        tuple(place for place, _ in points),
        tuple(time_us for _, time_us in points),
        tuple(best.values()),
    )


def _timed(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.status is Status.CORRECT and trial.time_us]


def _values(trials: Sequence[Trial], name: str) -> list[Value]:
    """The values that were tried: numbers by size, others by name."""
    found = {trial.config[name] for trial in trials if name in trial.config}
    return sorted(found, key=lambda value: (isinstance(value, str), str(value) if isinstance(value, str) else value))


def _shades(times: Iterable[float]) -> dict[float, int]:
    """By rank, so that one slow corner does not make all else look alike."""
    ordered = sorted(set(times))
    return {time: _SHADES * rank // len(ordered) for rank, time in enumerate(ordered)}
