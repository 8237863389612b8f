"""The modelled clock's parameters in one table: each figure with its unit, its possible range and its source.

A vector instruction works in repeats of 256 bytes. An operation's `cycles a repeat` refer to its widest operand, hold
for 32-bit elements, and leave out conflicts between its operands' memory banks, which the clock finds in the addresses.
Figures without a public source are marked "estimated". Figures determined by published timings start with "fitted" and
say which; `tilewise bench model` judges the model with each kernel's own timings left out of that fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES, CUBE_RATES
from tilewise.tuner.hardware.figure import Figure

__all__ = [
    "FIGURES",
    "HBM_CORE_GB_S",
    "INTERVAL",
    "REPEAT_CYCLES",
    "SLOW_IN_16_BITS",
    "Costs",
    "End",
    "Figure",
    "costs",
]


End = Literal["value", "low", "high"]


_PUBLIC = "public measurements on one 910B part"
_CYCLES = "public cycle measurements of single instructions on a 910B1 and a 910B3"
_VENDOR = "the vendor's published examples"
_WARM = "fitted: the warm kernels of published timings"
_COLD = "fitted: the published timings with a cold cache"
_WAVES = "fitted: published timings with many programs"

FIGURES: Mapping[str, Figure] = {
    "launch_us": Figure(
        1.16, 0.8, 1.8, "us", _WARM + " of few programs (public: about 2 us in all for a short kernel)"
    ),
    "launch_48_us": Figure(
        3.25, 2.7, 5.0, "us", "fitted: published timings of small kernels on a part of 48 vector cores"
    ),
    "cold_us": Figure(0.55, 0.4, 1.4, "us", _COLD + ": fetching code and arguments through it"),
    "dispatch_us": Figure(0.0153, 0.006, 0.02, "us a program", _WAVES + ": programs are handed out one by one"),
    "program_start": Figure(263, 120, 500, "cycles a program", _WAVES),
    "vector_dispatch": Figure(16, 14, 19, "cycles", _VENDOR + ": 22 cycles an addition beside its repeats, less start"),
    "vector_next": Figure(
        14.3, 8, 22, "cycles", _WARM + "; at most 22 in " + _VENDOR + ": further instructions of one operation"
    ),
    "vector_start": Figure(6, 4, 7, "cycles", _CYCLES + ": results of simple operations"),
    "function_start": Figure(13, 12, 14, "cycles", _CYCLES + ": exponential, logarithm, root, quotient"),
    "bank_conflict": Figure(2, 1.9, 2.2, "cycles a repeat", _VENDOR + ": two operands read from the same banks"),
    "bank_crossing": Figure(1.77, 1.6, 2, "cycles a repeat", _VENDOR + ": read from and written to the same banks"),
    "fold_start": Figure(20, 8, 23, "cycles", _CYCLES + ": a reduction within each repeat"),
    "mte2_start": Figure(21, 18, 24, "cycles", _VENDOR + ": transfers of 128 B, one every 21.3 cycles"),
    "mte3_start": Figure(21, 18, 40, "cycles", "estimated as an inward transfer"),
    "l2_latency_ns": Figure(138, 90, 170, "ns", _WARM + ": first byte from the L2 cache, or acknowledged by it"),
    "hbm_latency_ns": Figure(
        200, 160, 260, "ns", _VENDOR + ": a core alone that loads, adds and stores in turn, 422 ns for 4096 numbers"
    ),
    "transfer_row": Figure(4, 2, 8.3, "cycles a row", "estimated; at most 8.3 in " + _VENDOR),
    "row_bytes": Figure(14, 10, 28, "bytes a row", _VENDOR + ": rows of 128 B, 1.08 times slower than of 2048 B"),
    "misaligned_line": Figure(1.0, 0.9, 1.1, "lines a row", _VENDOR + ": rows of 2048 and 512 B, 1.28 and 1.91 times"),
    "same_block_ns": Figure(
        62.7,
        50,
        75,
        "ns a row",
        "fitted: kb_45_average_2d's windows; elements stored side by side (triton-ascend issue 1673) take 54 ns each",
    ),
    "barrier": Figure(2, 0, 6, "cycles", "estimated: a barrier beside the drain that it forces"),
    "flag": Figure(14.9, 6, 24, "cycles", _WARM + ": a flag from one pipe to another"),
    "vector_issue": Figure(
        4, 2, 8, "cycles", _VENDOR + ": 21.3 for a step of a loop with one transfer; its share estimated"
    ),
    "scalar": Figure(0.5, 0.25, 1, "cycles", "estimated: one address or loop operation, after the final optimiser"),
    "scalar_function": Figure(24, 10, 60, "cycles", "estimated: a root, quotient or exponential of one number"),
    "scalar_on_chip": Figure(
        7.34, 4, 10.5, "cycles", "fitted: published running sums; " + _VENDOR + ": 34 an addition"
    ),
    "scalar_outside": Figure(300, 60, 600, "cycles a line of 64 bytes", "estimated as global memory's latency"),
    "iteration": Figure(3, 2, 8, "cycles", _VENDOR + ": as above; its share estimated"),
    "repeats_per_issue": Figure(255, 255, 255, "repeats", "instruction set: the repeat field has 8 bits"),
    "l2_read_bytes": Figure(
        56.8,
        52,
        75,
        "bytes a cycle",
        _WARM
        + ": a vector core while the other of its pair reads too, twice that alone (public: 110 for a cube core and "
        "its two vector cores)",
    ),
    "l2_write_bytes": Figure(64, 56, 86, "bytes a cycle", "the vendor's platform description: one core's UB to L2"),
    "l2_share": Figure(1, 0.93, 1.07, "of the part's rate", _WARM),
    "read_share": Figure(1, 0.97, 1.03, "of the part's rate", "fitted: published timings that stream"),
    "mixed_share": Figure(1.01, 0.96, 1.04, "of the part's rate", "fitted: published timings that stream both ways"),
    "eviction": Figure(0.98, 0.6, 1.1, "bytes a byte", _COLD + ": dirty lines written back for each byte brought in"),
    "shared_line_us": Figure(0.003, 0.0015, 0.007, "us a store", _WAVES + ": stores to one line of 512 B, one by one"),
    "atomic_us": Figure(0.0379, 0.02, 0.06, "us a store", "fitted: min_all_small: atomics on one address, one by one"),
}

HBM_CORE_GB_S = {1: 100.9, 8: 68.9, 16: 73.3, 20: 68.8, 24: 65.1, 28: 59.0, 32: 53.3, 40: 41.6, 48: 33.7}
"""Global memory rate of one core, by active cores, on a part that draws 1.6 TB/s in all (public measurements).

From 8 to 20 cores, which draw less than the part gives, it is that of a pair on one path; above, the memory is shared.
"""

INTERVAL = (0.82, 1.22)
"""Factors of a modelled time between which the real one lies, from the residuals of kernels left out of the fit."""

_ONE = Figure(1, 1, 1, "cycles a repeat", _CYCLES)
_TWO = Figure(2, 2, 2.2, "cycles a repeat", _CYCLES)
_LONG = Figure(4, 2, 8, "cycles a repeat", "estimated as a division")

REPEAT_CYCLES: Mapping[str, Figure] = {
    **dict.fromkeys(("vadd", "vsub", "vmul", "vmax", "vmin", "vabs", "vrelu", "vnot", "vand", "vor"), _ONE),
    **dict.fromkeys(("vcmp", "vshl", "vshr", "vbrc", "copy", "vrsqrt", "vrec"), _ONE),
    **dict.fromkeys(("vsel", "vexp", "vln", "vsqrt"), _TWO),
    "vdiv": Figure(4, 4, 4.1, "cycles a repeat", _CYCLES),
    "vcast": Figure(1, 1, 1.5, "cycles a repeat", _CYCLES + "; 2 from 16 to 32 bits"),
    "fold": Figure(7, 7, 7, "cycles a repeat", _CYCLES + ": sum, maximum or minimum within a repeat"),
    "vxor": Figure(6, 3, 8, "cycles a repeat", "estimated as three operations: there is no such instruction"),
    "varange": Figure(1, 1, 2, "cycles a repeat", "estimated as an addition"),
    **dict.fromkeys(("vtanh", "vsin", "vcos", "verf", "vpow", "vmod", "vmulext", "vmulextui", "vmulextended"), _LONG),
    **dict.fromkeys(
        ("vtranspose", "vflip", "vinterleave", "vdeinterleave", "vconcat", "vpad"),
        Figure(12, 4, 24, "cycles a repeat", _CYCLES + ": 24 for two repeats of rows turned into columns"),
    ),
    "vgather": Figure(12, 12, 24, "cycles a repeat", _CYCLES),
    "vsort": Figure(8, 4, 16, "cycles a repeat", "estimated: a pass of sorting or merging"),
}

SLOW_IN_16_BITS = frozenset({"vexp", "vln", "vsqrt", "vdiv"})
"""Operations whose repeat, of twice as many elements, takes twice as long in 16 bits (the same public measurements)."""


@dataclass(frozen=True, slots=True)
class Costs:
    """One value of every figure, as plain numbers."""

    figures: Mapping[str, float]
    repeat_cycles: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.figures[name]


def costs(end: End = "value", instead: Mapping[str, Figure] | None = None) -> Costs:
    """Return all figures, those of cube cores too, at their best values, or at the ends that make a kernel fast (`low`)
    or slow (`high`).

    `instead` holds a calibration's figures, of either table, which replace the shipped ones.
    """
    rates = {"l2_read_bytes", "l2_write_bytes", "l2_share", "read_share", "mixed_share", *CUBE_RATES}  # more is faster
    opposite: dict[End, End] = {"value": "value", "low": "high", "high": "low"}
    changed = instead or {}
    chosen = {name: changed.get(name, figure) for name, figure in {**FIGURES, **CUBE_FIGURES}.items()}
    figures = {name: getattr(f, opposite[end] if name in rates else end) for name, f in chosen.items()}
    return Costs(figures, {name: getattr(changed.get(name, f), end) for name, f in REPEAT_CYCLES.items()})
