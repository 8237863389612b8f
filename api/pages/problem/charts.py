"""The heat map of two parameters, as plain values for a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewise.api.pages.problem.landscape import ABSENT, Landscape

__all__ = ["Cell", "HeatMap", "heat_map"]

_SHADES = 10
"""Steps of the heat map's scale; the style sheet has one class per step."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The best time of a pair of values. `shade` goes from 0, the fastest, to 9. Both are None if nothing ran."""

    time_us: float | None = None
    shade: int | None = None
    failed: int = 0


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The best time by two parameters, with one row of cells per value of the second. `best` holds the values of both
    and the time of the fastest cell, which may lie beyond the edge of a small screen; None if nothing ran."""

    across: str
    down: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    best: tuple[str, str, float] | None


def heat_map(landscape: Landscape, across: str, down: str) -> HeatMap:
    """Return the best times by two parameters. Raises `KeyError` if no trial has one of them."""
    wide, high = landscape.parameter(across), landscape.parameter(down)
    best: dict[tuple[int, int], float] = {}
    failed: dict[tuple[int, int], int] = {}
    for column, row, time_us in zip(wide.codes, high.codes, landscape.times_us, strict=True):
        pair = column, row
        if ABSENT in pair:
            continue
        if time_us is None:
            failed[pair] = failed.get(pair, 0) + 1
        else:
            best[pair] = min(time_us, best.get(pair, time_us))
    shades = _shades(best.values())

    def cell(pair: tuple[int, int]) -> Cell:
        time_us = best.get(pair)
        return Cell(time_us, None if time_us is None else shades[time_us], failed.get(pair, 0))

    columns, rows = wide.labels(), high.labels()
    fastest = min(best, key=lambda pair: best[pair], default=None)
    return HeatMap(
        across,
        down,
        tuple(columns),
        tuple((label, tuple(cell((n, m)) for n in range(len(columns)))) for m, label in enumerate(rows)),
        (columns[fastest[0]], rows[fastest[1]], best[fastest]) if fastest else None,
    )


def _shades(times: Iterable[float]) -> dict[float, int]:
    """Return each time's shade, by rank, so that one slow corner does not make all others look alike."""
    ordered = sorted(set(times))
    return {time: _SHADES * rank // len(ordered) for rank, time in enumerate(ordered)}
