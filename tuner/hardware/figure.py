"""One figure of a cost table."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Figure"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with the range in which it may lie, its unit, and where it comes from."""

    value: float
    low: float
    high: float
    unit: str
    source: str
