"""A problem's configs under their roofline, from stored results: nothing is compiled or timed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewise.db.records import Clock, Result
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.hardware.calibrated_costs import calibrated
from tilewise.tuner.hardware.peaks import Arithmetic, arithmetic, arithmetic_binds
from tilewise.tuner.hardware.targets import sheet_gb_s

__all__ = ["Mark", "Roofline", "roofline"]

_STEPS = 24
"""Marks per factor of ten in the rate. Trials of nearly one rate are one mark, so that 50,000 are quickly drawn."""

_ADDITION_BITS = 256 * 8
"""Bits that a vector core adds in one repeat of an instruction."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Trials that reach nearly the same rate."""

    gflop_s: float
    count: int


@dataclass(frozen=True, slots=True)
class Roofline:
    """The rates that all trials reach, computed from the problem's least bytes and operations.

    `roofs` holds the device's upper bounds in GB/s by name; it is empty if they are not known. `peak_gflop_s` is that
    of the matrix units for the operands' dtype, or of additions; None if it is not known. `bound` is the floor of the
    arithmetic, where that is higher than memory's. `intensity` is operations per byte of least traffic.
    """

    intensity: float
    gb_s: float
    gflop_s: float
    default_gb_s: float | None
    roofs: Mapping[str, float]
    peak_gflop_s: float | None
    peak_of: str
    bound: Arithmetic | None
    time_us: float
    marks: Sequence[Mark]

    @property
    def highest(self) -> float:
        return max(self.gb_s, *self.roofs.values()) if self.roofs else self.gb_s

    @property
    def default_gflop_s(self) -> float | None:
        return None if self.default_gb_s is None else self.default_gb_s * self.intensity


def roofline(result: Result, spec: KernelSpec | None, times_us: Iterable[float] = ()) -> Roofline | None:
    """Return the roofline with trials of these times; None if nothing won, or without the kernel's spec, which counts
    bytes and operations."""
    if spec is None or result.winner is None or not result.winner.time_us:
        return None
    scope = result.scope
    problem = scope.problem
    moved, operations = spec.bytes(problem), spec.flops(problem)
    if not moved:
        return None

    def rate(time_us: float | None) -> float | None:
        return moved / time_us / 1e3 if time_us else None

    default = rate(result.default.time_us) if result.default else None
    units = arithmetic(spec, problem, scope.device)
    return Roofline(
        intensity=operations / moved,
        gb_s=moved / result.winner.time_us / 1e3,
        gflop_s=operations / result.winner.time_us / 1e3,
        default_gb_s=default,
        roofs=_roofs(result),
        peak_gflop_s=units.peak_tflop_s * 1e3 if units else _additions(result),
        peak_of="products" if units else "additions",
        bound=arithmetic_binds(spec, problem, scope.device),
        time_us=result.winner.time_us,
        marks=_marks(operations / time_us / 1e3 for time_us in times_us if time_us) if operations else [],
    )


def _marks(rates: Iterable[float]) -> list[Mark]:
    counts = Counter(round(_STEPS * math.log10(rate)) for rate in rates)
    return [Mark(10 ** (step / _STEPS), count) for step, count in sorted(counts.items())]


def _is_modelled(result: Result) -> bool:
    return result.scope.clock is Clock.MODELLED and result.scope.device in PARTS


def _roofs(result: Result) -> dict[str, float]:
    """Return the upper bounds of a modelled part, or the rate on a measured GPU's data sheet."""
    if not _is_modelled(result):
        rate = sheet_gb_s(result.scope.device)
        return {} if rate is None else {"memory, by the data sheet": rate}
    part = PARTS[result.scope.device]
    figures = costs(instead=calibrated(part.name))
    return {
        "global memory": part.read_gb_s * figures["read_share"],
        "L2 cache": part.l2_gb_s * figures["l2_share"],
    }


def _additions(result: Result) -> float | None:
    """Return the float32 additions of a modelled part's vector cores, in 10**9 per second."""
    if not _is_modelled(result):
        return None
    part = PARTS[result.scope.device]
    cycles = costs(instead=calibrated(part.name)).repeat_cycles["vadd"]
    return part.cores * _ADDITION_BITS / 32 / cycles * part.clock_ghz
