"""Shared by the specs of matrix products: sides of tiles, and what a program's registers and shared memory hold."""

from __future__ import annotations

from typing import Any

from tilewise.kernels.candidate_values import powers_of_two
from tilewise.kernels.spec import Config, Problem, Target, Tiling, ceil_div

__all__ = [
    "EIGHT_BIT_FLOATS",
    "EXACT_TERMS",
    "EXACT_TOLERANCE",
    "buffered",
    "default_group",
    "draw_scales",
    "group_holds",
    "operands_hold",
    "scale_of_each",
    "sums_hold",
    "up_to",
]

EIGHT_BIT_FLOATS = "8-bit floats need an NVIDIA GPU of compute capability 8.9 or later"

EXACT_TERMS = 128
"""Terms that tensor cores add up before their sum of 8-bit products is added to a float32 one."""

EXACT_TOLERANCE = EXACT_TERMS // 32 * 2.0**-13
"""How far such sums may be off beyond float32, relative to the RMS; `gemm` says why."""


def up_to(size: int, least: int, most: int) -> list[int]:
    """Return the powers of two from `least` to the first that holds `size`, at most `most`."""
    return [value for value in powers_of_two(least, size) if value <= most]


def buffered(rows: int, stages: int) -> int:
    """Return the trips whose operands have shared memory. Tiles of less than 64 rows are multiplied from registers, so
    that one trip fewer does."""
    return stages if rows >= 64 else stages - 1


def sums_hold(rows: int, cols: int, warps: int) -> bool:
    """Return whether a thread holds 2 to 128 of a tile's sums: more would spill, and fewer leave the tensor cores
    idle."""
    return 2 <= rows * cols / (32 * warps) <= 128


def operands_hold(tiling: Tiling, target: Target) -> bool:
    """Return whether the operands in flight fit a program's shared memory, which is 1 KiB less than the core's."""
    assert tiling.dot is not None, "a product's tiling has one"
    if target.family != "nvidia":
        return 2 * tiling.streamed_bytes <= target.on_chip_bytes
    return tiling.dot.stages * tiling.streamed_bytes + tiling.dot.shared_bytes <= target.on_chip_bytes - 1024


def group_holds(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether the product has as many rows of tiles as are to be worked on together."""
    return int(config["GROUP_M"]) <= ceil_div(problem.dims["M"], int(config["BLOCK_M"]))


def default_group(m: int, rows: int) -> int:
    """Return how many rows of tiles to work on together, of a product of m rows."""
    return max(group for group in (1, 4, 8) if group <= ceil_div(m, rows))


def scale_of_each(scales: Any, shape: tuple[int, int], block: int) -> Any:
    """Return the scale of each element of a matrix of this shape, whose blocks of block x block elements share one."""
    rows, depth = shape
    return scales.repeat_interleave(block, 0)[:rows].repeat_interleave(block, 1)[:, :depth]


def draw_scales(tensor: Any, generator: Any, *, size: float = 1.0) -> None:
    """Draw factors near `size`, in whatever way the rest is drawn: larger ones would leave few sums in the range of 16
    bits, those that cancel, which are off by what the large ones may be."""
    tensor.uniform_(0.5 * size, 1.5 * size, generator=generator)
