"""A problem's configs under their roofline, from stored results: nothing is compiled or timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewise.db.records import Clock, Result
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.hardware.calibrated_costs import calibrated
from tilewise.tuner.hardware.peaks import Arithmetic, arithmetic_binds

__all__ = ["Roofline", "roofline"]


@dataclass(frozen=True, slots=True)
class Roofline:
    """The rates that the winner and the default reach, computed from the problem's least bytes and operations.

    `roofs` holds the device's upper bounds in GB/s by name; it is empty if they are not known. `bound` is the floor of
    the arithmetic, where that is higher than memory's.
    """

    intensity: float
    gb_s: float
    gflop_s: float
    default_gb_s: float | None
    roofs: Mapping[str, float]
    bound: Arithmetic | None
    time_us: float

    @property
    def highest(self) -> float:
        return max(self.gb_s, *self.roofs.values()) if self.roofs else self.gb_s


def roofline(result: Result, spec: KernelSpec | None) -> Roofline | None:
    """Return the roofline; None if nothing won, or without the kernel's spec, which counts bytes and operations."""
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
    return Roofline(
        intensity=operations / moved,
        gb_s=moved / result.winner.time_us / 1e3,
        gflop_s=operations / result.winner.time_us / 1e3,
        default_gb_s=default,
        roofs=_roofs(result),
        bound=arithmetic_binds(spec, problem, scope.device),
        time_us=result.winner.time_us,
    )


def _roofs(result: Result) -> dict[str, float]:
    """Return the upper bounds of a modelled part; those of a measured device are not stored."""
    part = PARTS.get(result.scope.device)
    if part is None or result.scope.clock is not Clock.MODELLED:
        return {}
    figures = costs(instead=calibrated(part.name))
    return {
        "global memory": part.read_gb_s * figures["read_share"],
        "L2 cache": part.l2_gb_s * figures["l2_share"],
    }
