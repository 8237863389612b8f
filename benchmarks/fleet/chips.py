"""Chips of two kinds that replay one recorded landscape, and problems for them whose best config is known."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from tilewise.db.exchange.foreign.landscapes.t4 import Row, read_landscape
from tilewise.db.records import Config, Dims, Problem, canonical_json
from tilewise.tuner.devices.recorded_chip import SUFFIX, Planted

__all__ = ["DTYPE", "KERNEL", "NAMES", "STALE", "TOOLCHAIN", "Chip", "chips", "problems", "true_us"]

KERNEL, DTYPE = "sum_rows", "float32"
NAMES = ("NVIDIA H200 replay A", "NVIDIA H200 replay B")
TOOLCHAIN, STALE = "replay 2", "replay 1"
SLOWNESS = (0.9, 1.1)
_VARIATION = 0.1
_RECORDING = Path(__file__).resolve().parents[2] / "landscapes" / "sum_rows-16384x1024-float32-H200.json.gz"


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip's file, and what it plants."""

    file: Path
    planted: Planted

    @property
    def id(self) -> str:
        return f"replay:{self.file}"


def chips(folder: Path, count: int, *, noise: float, seconds: float, seed: int) -> list[Chip]:
    """Write the files of `count` chips of `NAMES` in turn, and last of one with a stale toolchain.

    The speeds of each kind are `SLOWNESS` and evenly between, in a drawn order.
    """
    least, most = SLOWNESS
    each = max(1, -(-count // len(NAMES)) - 1)
    slowness = [round(least + (most - least) * step / each, 4) for step in range(each + 1)]
    random.Random(seed).shuffle(slowness)
    planted = [
        Planted(
            str(_RECORDING),
            NAMES[number % len(NAMES)],
            TOOLCHAIN,
            slowness=slowness[number // len(NAMES)],
            noise=noise,
            variation=_VARIATION,
            seconds=seconds,
        )
        for number in range(count)
    ]
    stale = replace(planted[0], toolchain=STALE)
    return [_written(folder / f"{number}{SUFFIX}", one) for number, one in enumerate([*planted, stale])]


def _written(file: Path, planted: Planted) -> Chip:
    file.write_text(json.dumps(asdict(planted)))
    return Chip(file, planted)


def problems(count: int) -> list[tuple[str, Dims]]:
    """Return `count` shapes, each with the name of the chips that are to tune it."""
    return [(NAMES[number % len(NAMES)], {"M": 16384 + number, "N": 1024}) for number in range(count)]


def true_us(name: str, problem: Problem, config: Config) -> float:
    """Return the time of a config without noise on a chip of this name without a planted slowness."""
    planted = Planted(str(_RECORDING), name, TOOLCHAIN, variation=_VARIATION)
    return planted.true_us(_rows()[canonical_json(dict(config))], problem)


@cache
def _rows() -> Mapping[str, Row]:
    return {canonical_json(dict(row.config)): row for row in read_landscape(_RECORDING).rows}
