"""Figures of the Ascend parts that the compiler does not know: clock, memory rates, cache and memory sizes.

Figures that the compiler does know (core counts, on-chip sizes, alignment) are read from a compiled module instead; see
`toolchain.target`. Where no public figure was found, the nearest sibling's is used and marked as estimated.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.errors import UnknownDevice

__all__ = ["PARTS", "Part", "part"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part: `clock_ghz` of its vector cores, `hbm_gb_s` of all cores together, and the `source` of the figures."""

    name: str
    clock_ghz: float
    hbm_gb_s: float
    l2_mib: int
    hbm_gib: int
    source: str


_PUBLIC = "public architecture notes of the 910B family"
_ESTIMATED = "estimated from its nearest sibling"

PARTS = {
    part.name: part
    for part in (
        Part("Ascend910B1", 1.85, 1600, 192, 64, _PUBLIC),
        Part("Ascend910B2", 1.8, 1600, 192, 64, _PUBLIC),
        Part("Ascend910B2C", 1.8, 1600, 192, 64, _ESTIMATED + " 910B2"),
        Part("Ascend910B3", 1.8, 1600, 192, 64, _PUBLIC + "; L2 " + _ESTIMATED + " 910B2"),
        Part("Ascend910B4", 1.5, 800, 96, 32, _PUBLIC + "; rate confirmed by published timings (0.78-0.80 TB/s)"),
        Part("Ascend910B4-1", 1.5, 1600, 96, 64, _ESTIMATED + " 910B4, memory as 910B3"),
        Part("Ascend910_9362", 1.8, 1600, 192, 64, _ESTIMATED + " 910B3"),
        Part("Ascend910_9372", 1.8, 1600, 192, 64, _ESTIMATED + " 910B3"),
        Part("Ascend910_9381", 1.8, 1600, 192, 64, _ESTIMATED + " 910_9382"),
        Part("Ascend910_9382", 1.8, 1600, 192, 64, _PUBLIC),
        Part("Ascend910_9391", 1.85, 1600, 192, 64, _ESTIMATED + " 910B1"),
        Part("Ascend910_9392", 1.85, 1600, 192, 64, _ESTIMATED + " 910B1"),
    )
}


def part(name: str) -> Part:
    """Return the part called `name`; raises `UnknownDevice` if it is not modelled."""
    if name not in PARTS:
        raise UnknownDevice(f"unknown Ascend part {name!r}; modelled: {', '.join(PARTS)}")
    return PARTS[name]
