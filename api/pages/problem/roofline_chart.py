"""The drawing of a roofline: places in a picture with logarithmic axes, which needs no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewise.api.pages.problem.roofline import Roofline

__all__ = ["HEIGHT", "WIDTH", "Chart", "Dot", "Roof", "chart"]

WIDTH, HEIGHT = 620, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 40
_WIDEST = 60.0
"""Half the width of the mark with the most trials."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Roof:
    """A bound, as a line of points."""

    name: str
    points: Sequence[Point]

    @property
    def path(self) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


@dataclass(frozen=True, slots=True)
class Dot:
    """Trials of nearly one rate, as a bar that is as wide as they are many; `title` says it in words."""

    y: float
    half: float
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything to draw. All trials stand at one `x`: the intensity of the least traffic, which they share."""

    x: float
    roofs: Sequence[Roof]
    dots: Sequence[Dot]
    winner: float
    default: float | None
    across: Sequence[tuple[float, str]]
    up: Sequence[tuple[float, str]]


def chart(shown: Roofline) -> Chart | None:
    """Return the drawing, or None if nothing is known above the trials or there is no arithmetic."""
    if not shown.roofs or not shown.gflop_s:
        return None
    low_x, high_x = shown.intensity / 30, shown.intensity * 30
    rates = [shown.gflop_s, *(mark.gflop_s for mark in shown.marks), shown.default_gflop_s or shown.gflop_s]
    bounds = [min(rate * shown.intensity, shown.peak_gflop_s or math.inf) for rate in shown.roofs.values()]
    low_y, high_y = min(rates) / 2, 8 * max(*bounds, *rates, shown.peak_gflop_s or 0.0)

    def at_x(intensity: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * math.log(intensity / low_x) / math.log(high_x / low_x)

    def at_y(rate: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * math.log(rate / low_y) / math.log(high_y / low_y)

    def slope(rate: float) -> list[Point]:
        """Return the line of a memory's rate, from the chart's edge to the peak or the other edge."""
        left = max(low_x, low_y / rate)
        right = min(high_x, (shown.peak_gflop_s or high_y) / rate)
        return [(at_x(left), at_y(left * rate)), (at_x(right), at_y(right * rate))] if left < right else []

    most = max((mark.count for mark in shown.marks), default=1)
    roofs = [Roof(f"{name}, {rate:,.0f} GB/s", slope(rate)) for name, rate in shown.roofs.items()]
    if peak := shown.peak_gflop_s:
        fastest = max(shown.roofs.values())
        flat = [(at_x(min(max(peak / fastest, low_x), high_x)), at_y(peak)), (at_x(high_x), at_y(peak))]
        roofs.append(Roof(f"{shown.peak_of}, {peak / 1e3:,.4g} TFLOP/s", flat))
    return Chart(
        x=at_x(shown.intensity),
        roofs=[roof for roof in roofs if roof.points],
        dots=[
            Dot(at_y(mark.gflop_s), 4 + (_WIDEST - 4) * mark.count / most, _title(mark.count, mark.gflop_s))
            for mark in shown.marks
        ],
        winner=at_y(shown.gflop_s),
        default=at_y(shown.default_gflop_s) if shown.default_gflop_s else None,
        across=[(at_x(value), _figure(value)) for value in _decades(low_x, high_x / 1.3)],
        up=[(at_y(value), _figure(value)) for value in _decades(low_y, high_y)],
    )


def _title(count: int, rate: float) -> str:
    return f"{count} trial{'' if count == 1 else 's'} at about {rate:,.3g} GFLOP/s"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
