"""The modelled cube core's figures in one table, each with its unit, its possible range and its source.

They stand beside those of vector cores (`ascend_costs.py`), which they share for launches, flags, barriers, the scalar
unit, latencies, and the memory of the whole part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from tilewise.tuner.hardware.figure import Figure

__all__ = [
    "CUBE_FIGURES",
    "CUBE_RATES",
    "LINE",
    "ODD_SHARE",
    "SMALL_US",
    "TRUST",
    "cube_fingerprint",
    "line_share",
]

LINE = 512
"""Bytes of a line, the unit in which memory is drawn and in which accesses take turns (the vendor's guide)."""

_PTO = "public cost model of PTO instructions for this family of parts"
_COPIES = "the vendor's published examples on 24 cube cores: a matrix of 302 MB copied to L1"

_PATH = (
    "the vendor's guide: MTE2 alone takes 591 us of a product of 4096 x 5120 x 4096 on 20 cores in rows of 512 B, and "
    "808 us where those of A have 128 B"
)

_ALIGNED = (
    "CATLASS (hicann/catlass@699bd18, example 102, a fit to measured rates): a core draws 4/3, 5/3, 8/3 of the rate of "
    "odd rows if rows are multiples of 32, 128, 256 bytes apart"
)

_STORES = "the vendor's published examples on 24 cube cores: a product's 134 MB of float16 stored"

_TUTORIAL = (
    "fitted: public times of a tutorial's wrapped product of eight sizes (triton-ascend issue 293), if run on 24 cube "
    "cores with tiles of 128 x 64 x 32, which make the eight agree"
)

CUBE_FIGURES: Mapping[str, Figure] = {
    "mad_start": Figure(6, 5, 8, "cycles a product", _PTO),
    "mad_fractal": Figure(1, 1, 1, "cycles a fractal of products", _PTO + ": 16 x 32 bytes x 16"),
    "mad_float32": Figure(2, 2, 2, "cycles a fractal of float32 products", _PTO),
    "mad_latency": Figure(20, 6, 40, "cycles", "estimated: from the last product until its sums can be read"),
    "l0a_bytes": Figure(256, 200, 256, "bytes a cycle", _PTO + ": L1 to L0A"),
    "l0b_bytes": Figure(128, 100, 128, "bytes a cycle", _PTO + ": L1 to L0B"),
    "mte1_start": Figure(
        43, 30, 55, "cycles", "derived from published shares of a product's pipes: MTE1 works 0.78 of M's time"
    ),
    "mte1_next": Figure(16, 4, 43, "cycles", "estimated: a further instruction of one load from L1"),
    "nd2nz_start": Figure(21, 18, 40, "cycles", "estimated as a transfer to the unified buffer"),
    "nd2nz_row": Figure(2, 0.5, 2.7, "cycles a row", _PATH + "; less than 2.7 in " + _COPIES + " in rows of 128 B"),
    "nd2nz_row_bytes": Figure(55, 45, 65, "bytes a row", _COPIES + ": rows of 128 and 512 B, 300.7 and 230.2 us"),
    "cube_read_bytes": Figure(149, 110, 160, "bytes a cycle", _PATH + " (110 is public as a core's path from L2)"),
    "l1_fill_bytes": Figure(64, 32, 256, "bytes a cycle", "estimated: zeros written to L1"),
    "fix_start": Figure(43, 20, 80, "cycles", "estimated as a load from L1"),
    "fix_bytes": Figure(
        65, 40.6, 68, "bytes a cycle", _STORES + " in 44.7 to 47.9 us of FIX; at least 40.6 in the " + _PTO
    ),
    "cross_flag": Figure(100, 50, 1000, "cycles", "estimated: a flag from a cube core to its vector cores, or back"),
    "element_access": Figure(
        1, 0.5, 6.6, "cycles", _TUTORIAL + "; at most a vector core's `scalar_on_chip`, whose loops wait for each sum"
    ),
    "element_line": Figure(
        200,
        60,
        600,
        "cycles a line of 64 bytes",
        "estimated as the L2 cache's latency; the vendor's manual has the line",
    ),
    "mixed_launch_us": Figure(
        2, 1, 5, "us", "public notes on CATLASS: a launch of cube and vector cores, beside one of cube cores"
    ),
    "far_row_ns": Figure(
        164,
        57,
        205,
        "ns a row",
        "measured on a 910B1 (hw-native-sys/pypto issue 2244): 128 rows of 1 KiB, loaded one by one, take about 21 us, "
        "with about 3.5 of them under way",
    ),
    "odd_line_ns": Figure(
        8.9,
        7.5,
        10.2,
        "ns a line",
        _COPIES + ": rows of 512 B that begin within blocks of 32 B, two lines each, 438.8 us",
    ),
    "line_of_32": Figure(0.75, 0.7, 0.9, "of an odd line", _ALIGNED + ": 32 bytes"),
    "line_of_128": Figure(0.6, 0.4, 0.65, "of an odd line", _ALIGNED + ": 128 bytes"),
    "line_of_256": Figure(0.375, 0.3, 0.4, "of an odd line", _ALIGNED + ": 256 bytes"),
    "far_stride": Figure(
        65535, 65535, 65535, "elements", "the compiler's template: from here, rows are loaded one by one"
    ),
}

CUBE_RATES = {"l0a_bytes", "l0b_bytes", "cube_read_bytes", "l1_fill_bytes", "fix_bytes"}
"""Figures of which more is faster."""

TRUST: Mapping[str, tuple[float, float]] = {
    "large product": (0.6, 1.6),
    "small product": (0.5, 2.0),
    "launch-bound": (0.4, 2.5),
    "cube and vector cores": (0.4, 2.5),
    "odd rows": (0.3, 2.5),
    "element-wise": (0.3, 3.0),
}
"""Factors of a modelled time between which the real one lies, by what the kernel's time is made of.

`tilewise bench cube` judged them: 17 products over 100 us, five shorter ones, and without the figure fitted to them
eight element-wise ones. Of cube and vector cores together only programs that were not compiled here are published: the
model is up to 1.7 times slower than one and more than twice as fast as another. Launches of cube cores have no
published times. Three products with odd or far rows are published: the modelled times are 0.84 to 1.22 times theirs.
But what a far row costs has been measured once.
"""

ODD_SHARE = 0.3
"""Share of the time from which loads of odd rows are a class: if far rows take 57 ns, the low end of their range, the
time is 0.8 times as long from there on."""

SMALL_US = 100.0
"""A product that takes less is small."""

_ALIGNED_LINES = {256: "line_of_256", 128: "line_of_128", 32: "line_of_32"}

_CUBE_VERSION = 10
"""Number of changes of the cube core's model that moved its times."""


def line_share(cost: Callable[[str], float], aligned: int) -> float:
    """Return the share of an odd line's time that loads to L1 take for each line that rows touch which are multiples of
    `aligned` bytes apart: none where rows are whole lines apart."""
    if aligned % LINE == 0:
        return 0.0
    return next((cost(name) for least, name in _ALIGNED_LINES.items() if aligned % least == 0), 1.0)


def cube_fingerprint() -> str:
    """Return the version of the cube core's model and a digest of its figures."""
    table = {name: asdict(figure) for name, figure in CUBE_FIGURES.items()}
    digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:8]
    return f"{_CUBE_VERSION}.{digest}"
