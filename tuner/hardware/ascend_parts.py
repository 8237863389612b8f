"""Figures of the Ascend parts: cores, clock, caches, and the rates that their memories sustain, each with its source.

The number of cores as the compiler sees it, and alignments, are read from a compiled module instead; see
`toolchain.target`. Where no measurement was found, the nearest sibling's is used and called estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tilewise.errors import UnknownDevice

__all__ = ["ON_CHIP_BYTES", "ON_CHIP_NAMES", "PARTS", "Part", "part"]

ON_CHIP_BYTES = {"ub": 192 << 10, "cbuf": 512 << 10, "cc": 128 << 10, "ca": 64 << 10, "cb": 64 << 10}
"""Memories of one core of every part of the Ascend 910B and 910_93 families, by the compiler's names: a vector core's
unified buffer; a cube core's L1, its accumulators L0C, and its operands L0A and L0B. The compiler's description of each
part has the same sizes."""

ON_CHIP_NAMES = {"ub": "UB", "cbuf": "L1", "cc": "L0C", "ca": "L0A", "cb": "L0B"}
"""Names of these memories in the vendor's texts and in messages."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part. `cores` are vector cores. The rates are those of all cores together, in GB/s.

    `l2_gb_s` is drawn from the L2 cache; `read_gb_s`, `write_gb_s` and `mixed_gb_s` are sustained by global memory for
    reads alone, writes alone, and both in comparable amounts. `hbm_gb_s` is its nominal rate, which bounds what may be
    believed. `sources` names the origin of each figure that the compiler does not know.
    """

    name: str
    cores: int
    clock_ghz: float
    l2_gb_s: float
    read_gb_s: float
    write_gb_s: float
    mixed_gb_s: float
    hbm_gb_s: float
    l2_mib: int
    hbm_gib: int
    sources: Mapping[str, str]

    def global_gb_s(self, written: float) -> float:
        """Return the rate of global memory where this share of all bytes is written: a straight line from reads alone
        to a third of writes, and from two thirds to writes alone."""
        pure, rest = (self.read_gb_s, written) if written < 1 / 2 else (self.write_gb_s, 1 - written)
        return pure + (self.mixed_gb_s - pure) * min(1.0, 3 * rest)

    @property
    def source(self) -> str:
        return "; ".join(f"{name} {source}" for name, source in self.sources.items())


_NOTES = "public architecture notes of the 910B family"
_VENDOR = "the vendor's published examples on 48 cores: "

_B1 = Part(
    "Ascend910B1",
    cores=48,
    clock_ghz=1.85,
    l2_gb_s=5960,
    read_gb_s=1490,
    write_gb_s=1650,
    mixed_gb_s=1570,
    hbm_gb_s=1600,
    l2_mib=192,
    hbm_gib=64,
    sources={
        "clock": "the vendor's platform description (1850 MHz)",
        "L2 size": "the vendor's platform description (201326592 bytes)",
        "L2 rate": _VENDOR + "slices of a matrix read four times (365.7 us for four slices of 75.5 MB)",
        "read rate": _VENDOR + "a matrix of 302 MB read once (202.7 us of transfers)",
        "write rate": "public measurements on one 910B part (34.3 GB/s a core on 48)",
        "mixed rate": _VENDOR + "an addition of 403 MB (257.6 us)",
        "nominal rate": _NOTES,
    },
)

_B4 = Part(
    "Ascend910B4",
    cores=40,
    clock_ghz=1.65,
    l2_gb_s=2100,
    read_gb_s=784,
    write_gb_s=784,
    mixed_gb_s=620,
    hbm_gb_s=800,
    l2_mib=96,
    hbm_gib=32,
    sources={
        "clock": "that of Ascend910B4-1, as the vendor's platform description (1500 MHz for both) is too slow for what "
        "is published of this part: 2268 us for 4096 cubed in float32, which keeps a cube unit busy for 3.43e6 cycles",
        "L2 size": "the vendor's platform description (100663296 bytes)",
        "L2 rate": "published warm timings (2.0-2.1 TB/s on 32 and 40 cores)",
        "read rate": "published timings of a streamed sum (0.78-0.80 TB/s)",
        "write rate": "estimated as the read rate",
        "mixed rate": "published timings of streamed element-wise kernels (0.60-0.63 TB/s)",
        "nominal rate": _NOTES,
    },
)


_CLOCKED = {
    "clock": "public profiles (357,870,303 cycles of 40 cores in 5422.277 us: LeleCheung/Ascend-Optimization, commit "
    "3e45e1c); the vendor's platform description has 1500 MHz"
}


def _like(sibling: Part, name: str, measured: Mapping[str, str] = MappingProxyType({}), **figures: float) -> Part:
    """Return a part with some figures of its own from the architecture notes, its sibling's for the others, and the
    sources of those of its sibling's that were `measured` on it."""
    own = {**dict.fromkeys(figures, _NOTES), **measured}
    return replace(sibling, name=name, **figures, sources={**own, "all others": f"estimated from {sibling.name}"})  # type: ignore[arg-type]


PARTS = {
    part.name: part
    for part in (
        _B1,
        _like(_B1, "Ascend910B2", clock_ghz=1.8),
        _like(_B1, "Ascend910B2C", clock_ghz=1.8),
        _like(_B1, "Ascend910B3", clock_ghz=1.8, cores=40),
        _B4,
        _like(
            _B4, "Ascend910B4-1", _CLOCKED, hbm_gb_s=1600, read_gb_s=1490, write_gb_s=1490, mixed_gb_s=1180, hbm_gib=64
        ),
        _like(_B1, "Ascend910_9362", clock_ghz=1.8, cores=40),
        _like(_B1, "Ascend910_9372", clock_ghz=1.8, cores=40),
        _like(_B1, "Ascend910_9381", clock_ghz=1.8),
        _like(_B1, "Ascend910_9382", clock_ghz=1.8),
        _like(_B1, "Ascend910_9391"),
        _like(_B1, "Ascend910_9392"),
    )
}

_OTHER_NAMES = {"910_9363": "Ascend910_9362", "Ascend910_9363": "Ascend910_9362"}
"""Names that drivers report and the open compiler does not know, with the part of the same core counts."""

_SOLD_AS = {
    "Ascend910C": "it is sold as two dies in one package; a kernel runs on one die, which the compiler calls "
    "Ascend910_93xx: use the name that npu-smi or torch.npu.get_device_name() gives, such as Ascend910_9382",
    "Ascend910B": "it is a family; use the name that npu-smi gives, such as Ascend910B3",
    "Ascend910_93": "it is a family; use the name that npu-smi gives, such as Ascend910_9382",
}
"""Names that stand for no single part, each with what to use instead."""


def part(name: str) -> Part:
    """Return the part called `name`, with or without the leading "Ascend"; raises `UnknownDevice` if it is none."""
    whole = name if name.startswith("Ascend") else f"Ascend{name}"
    known = _OTHER_NAMES.get(whole, whole)
    if known in PARTS:
        return PARTS[known]
    if known in _SOLD_AS:
        raise UnknownDevice(f"{name} is not one part: {_SOLD_AS[known]}; modelled: {', '.join(PARTS)}")
    raise UnknownDevice(f"unknown Ascend part {name!r}; modelled: {', '.join(PARTS)}")
