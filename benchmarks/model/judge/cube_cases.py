"""Published timings of kernels with matrix products, and the config of a kernel here that tiles as each of them did.

Sources are named case by case in `cube_published.json`. Programs of other frameworks are compared with the Triton
kernel of the same tiles: it multiplies whole tiles of rows, loads its first operands anew in every trip and stores a
tile before it begins the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tilewise.db.records import L2State
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, Problem

__all__ = ["CubeCase", "cube_cases"]

_FILE = Path(__file__).with_name("cube_published.json")
_CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class CubeCase:
    """One published time. `kernel` is a registered name or a file of the checkout; `configs` are several where only the
    fastest one's time is published.

    `kind` is `large` (over 100 us), `small`, `mixed` (cube and vector cores), `element-wise`, or `assumed`, where dtype
    and tile are not published. `busy` is the published share of the time that a pipe is busy. `fitted` names the
    figures that were fitted to this case, each with the end of its range that was likely before. `busiest` is the work
    of the core that has most of it, where a program did not divide it evenly: the modelled time is that much longer.
    """

    name: str
    source: str
    part: str
    kernel: str
    problem: Problem
    configs: tuple[Config, ...]
    l2: L2State
    published_us: float
    kind: str
    busy: Mapping[str, float] = field(default_factory=dict)
    fitted: Mapping[str, Literal["low", "high"]] = field(default_factory=dict)
    busiest: float = 1.0


def cube_cases() -> Iterator[CubeCase]:
    """Yield the cases in the file's order."""
    for row in json.loads(_FILE.read_text())["cases"]:
        kernel = row.get("kernel", "gemm")
        if ".py:" in kernel:
            kernel = str(_CHECKOUT / kernel)
        name = registry.load(kernel).name
        yield CubeCase(
            name=row["name"],
            source=row["source"],
            part=row["part"],
            kernel=kernel,
            problem=Problem(name, row["dims"], row["dtype"], row.get("flags", {})),
            configs=tuple(row.get("configs") or [_config(row, tile) for tile in row["tiles"]]),
            l2=L2State(row["l2"]),
            published_us=row["published_us"],
            kind=row["kind"],
            busy=row.get("busy", {}),
            fitted=row.get("fitted", {}),
            busiest=row.get("busiest", 1.0),
        )


def _config(row: dict[str, Any], tile: list[int]) -> Config:
    rows, cols, depth = tile
    return {
        "VARIANT": "masked",
        "BLOCK_M": rows,
        "BLOCK_N": cols,
        "BLOCK_K": depth,
        "GROUP_M": row.get("group", 1),
        "SPLIT_K": 1,
        "PROGRAMS": row["programs"],
        "multibuffer": True,
    }
