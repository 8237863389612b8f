"""The modelled clock's parameters in one table: each figure with its unit, its possible range and its source.

A vector instruction works in repeats of 256 bytes. An operation's `cycles per repeat` refer to its widest operand.
Figures without a public source are marked "estimated". Figures determined by published timings are marked "fitted" and
name the case; `tilewise bench model` does not judge the model by the rows used for fitting. The ranges give a modelled
time its interval: all costs at their low ends, and all at their high ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["FIGURES", "HBM_CORE_GB_S", "REPEAT_CYCLES", "Costs", "End", "Figure", "costs", "interval_factors"]


End = Literal["value", "low", "high"]


@dataclass(frozen=True, slots=True)
class Figure:
    value: float
    low: float
    high: float
    unit: str
    source: str


_PUBLIC = "public measurements on one 910B part"
_HEADLINE = "public range; within it fitted: row 3 of the headline case"
_SMALL = "fitted: 8, 32 and 128 programs of min_all_small"
_ROWS = "fitted: mean_rows at 25 rows of 2 KB, on 20 and 40 cores"
_STEPS = "fitted: mean_rows at 4096 columns and min_all_large at 8192 elements a step"

FIGURES: Mapping[str, Figure] = {
    "launch_us": Figure(0.55, 0.3, 0.9, "us", _SMALL + " (public: about 2 us in all for a short vector kernel)"),
    "dispatch_us": Figure(0.025, 0.01, 0.045, "us a program", "estimated: programs are handed out one by one"),
    "program_start": Figure(300, 150, 800, "cycles a program", "fitted: sum_rows_tall at 4 rows (16384 programs)"),
    "vector_start": Figure(35, 30, 40, "cycles", _PUBLIC),
    "mte2_start": Figure(50, 40, 60, "cycles", _PUBLIC),
    "mte3_start": Figure(40, 30, 50, "cycles", _PUBLIC),
    "transfer_latency": Figure(260, 200, 600, "cycles", "estimated, fitted as program_start: its first byte"),
    "transfer_row": Figure(18, 8, 28, "cycles a row", _ROWS + ": a step to the next row"),
    "short_row_bytes": Figure(256, 256, 512, "bytes", "public: rows under 256 B move at the cost of 256 B"),
    "barrier": Figure(4, 0, 12, "cycles", "estimated: a barrier beside the drain that it forces"),
    "flag": Figure(8, 4, 20, "cycles", "estimated: a flag from one pipe to another"),
    "vector_issue": Figure(6, 2, 12, "cycles", "estimated: scalar work to issue one vector instruction"),
    "scalar": Figure(0.5, 0.25, 1, "cycles", "estimated: one address or loop operation, after the final optimiser"),
    "scalar_function": Figure(24, 10, 60, "cycles", "estimated: a root, quotient or exponential of one number"),
    "scalar_on_chip": Figure(12, 6, 24, "cycles", "estimated: one element between a register and on-chip memory"),
    "scalar_outside": Figure(300, 30, 600, "cycles", "estimated: one element of global memory, cached or not"),
    "iteration": Figure(6, 3, 12, "cycles", "estimated: branch of a loop"),
    "repeats_per_issue": Figure(255, 255, 255, "repeats", "instruction set: the repeat field has 8 bits"),
    "l2_core_gb_s": Figure(100, 75, 137, "GB/s a core", _ROWS + "; a core alone draws as much from HBM; public: 137"),
    "l2_sum_gb_s": Figure(2300, 2000, 2600, "GB/s", _ROWS + "; published warm timings: 2.0-2.6 TB/s"),
    "l2_start": Figure(85, 0, 130, "cycles", _STEPS + ": start of a transfer that no other core's transfer hides"),
    "hbm_share": Figure(0.98, 0.95, 1.0, "of the nominal rate", "published: 0.78-0.80 of 0.8 TB/s"),
    "ub_out_share": Figure(1.0, 0.8, 1.2, "of the inward rate", _PUBLIC + ": 42.6 against 41.6 GB/s a core at 40"),
    "atomic_us": Figure(0.042, 0.02, 0.06, "us a store", _SMALL + ": atomics on one address pass one by one"),
    "left_out": Figure(1.0, 0.95, 1.05, "of the time", "estimated: what the model leaves out"),
}

HBM_CORE_GB_S = {1: 100.9, 8: 68.9, 16: 73.3, 20: 68.8, 24: 65.1, 28: 59.0, 32: 53.3, 40: 41.6, 48: 33.7}
"""Global memory rate of one core, by active cores, on a part that draws 1.6 TB/s in all (public measurements)."""

_ADD = Figure(2, 2, 2, "cycles a repeat", _PUBLIC)
_MOVE = Figure(2, 1, 2, "cycles a repeat", "estimated as an addition: 128 bytes a cycle")
_COMPARE = Figure(2, 1, 2, "cycles a repeat", "estimated as an addition")
_SHUFFLE = Figure(4, 2, 8, "cycles a repeat", "estimated: a move by elements or small blocks")
_LONG = Figure(4, 2, 8, "cycles a repeat", "estimated as a division")

REPEAT_CYCLES: Mapping[str, Figure] = {
    **dict.fromkeys(("vadd", "vsub", "vmul"), _ADD),
    **dict.fromkeys(("vmax", "vmin", "vabs", "vrelu", "vnot", "vand", "vor", "vxor", "vcmp", "vsel"), _COMPARE),
    **dict.fromkeys(("vshl", "vshr", "varange"), _COMPARE),
    **dict.fromkeys(("vbrc", "copy", "vcast"), _MOVE),
    **dict.fromkeys(("vln", "vsqrt", "vrsqrt", "vrec", "vtanh", "vsin", "vcos", "verf", "vpow"), _LONG),
    **dict.fromkeys(("vtranspose", "vflip", "vinterleave", "vdeinterleave", "vconcat", "vpad"), _SHUFFLE),
    **dict.fromkeys(("vmod", "vmulext", "vmulextui", "vmulextended"), _LONG),
    "vgather": Figure(64, 16, 64, "cycles a repeat", "estimated: one cycle an element of four bytes"),
    "vsort": Figure(8, 4, 16, "cycles a repeat", "estimated: a pass of sorting or merging"),
    "vexp": Figure(2, 2, 4, "cycles a repeat", _HEADLINE + " (public: 2-4)"),
    "vdiv": Figure(4, 4, 8, "cycles a repeat", _HEADLINE + " (public: 4-8)"),
}


@dataclass(frozen=True, slots=True)
class Costs:
    """One value of every figure, as plain numbers."""

    figures: Mapping[str, float]
    repeat_cycles: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.figures[name]


def costs(end: End = "value", instead: Mapping[str, Figure] | None = None) -> Costs:
    """Return all figures at their best values, or all at the ends that make a kernel fast (`low`) or slow (`high`).

    `instead` holds a calibration's figures, of either table, which replace the shipped ones.
    """
    rates = {"l2_core_gb_s", "l2_sum_gb_s", "hbm_share", "ub_out_share"}  # more is faster
    opposite: dict[End, End] = {"value": "value", "low": "high", "high": "low"}
    changed = instead or {}
    chosen = {name: changed.get(name, figure) for name, figure in FIGURES.items()}
    figures = {name: getattr(f, opposite[end] if name in rates else end) for name, f in chosen.items()}
    return Costs(figures, {name: getattr(changed.get(name, f), end) for name, f in REPEAT_CYCLES.items()})


_INTERVAL = (0.62, 1.6)


def interval_factors() -> tuple[float, float]:
    """Return the factors of a modelled time between which the real one lies."""
    return _INTERVAL
