"""Tiles of matrix products on Ascend's cube cores: what L1 and L0C hold, and the largest tiles that keep cores busy."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.kernels.matrix.tiles import up_to
from tilewise.kernels.spec import Target, Tiling, Value, ceil_div

__all__ = [
    "CUBE_DTYPES",
    "accumulator_holds",
    "cube_tile_holds",
    "default_cube_tile",
    "depths",
    "operands_in_l1",
    "sides",
    "vector_memory_holds",
]

CUBE_DTYPES = "float32 and int8 products are for Ascend's cube cores"

_L1_BYTES, _L0C_BYTES = 512 << 10, 128 << 10
"""A cube core's memories for operands and for sums; the compiler refuses tiles that exceed them."""

_TILES = ((128, 256), (256, 128), (128, 128), (64, 256), (64, 128), (64, 64), (32, 128), (32, 64), (16, 64))
"""Rows and columns of tiles, the one with the fewest bytes per product first."""


def sides(size: int) -> Sequence[Value]:
    """Return the sides of a tile along an axis of this size."""
    return up_to(size, 16, 256)


def depths(size: int, item_bytes: int) -> Sequence[Value]:
    """Return the depths of a trip along an axis of this size: 64 to 1024 bytes of a row."""
    return up_to(size, max(16, 64 // item_bytes), 1024 // item_bytes)


def operands_in_l1(rows: int, cols: int, depth: int, item_bytes: int) -> bool:
    """Return whether L1 holds the operands of one trip; where it holds no second pair, loads are not overlapped."""
    return (rows + cols) * depth * item_bytes <= _L1_BYTES


def accumulator_holds(rows: int, cols: int) -> bool:
    """Return whether L0C holds a tile's sums."""
    return 4 * rows * cols <= _L0C_BYTES


def vector_memory_holds(rows: int, cols: float, target: Target) -> bool:
    """Return whether each of the two vector cores beside a cube core holds its half of the rows of float32 sums, with
    so many columns in all tiles."""
    return 4 * rows / 2 * cols <= target.on_chip_bytes


def cube_tile_holds(tiling: Tiling) -> bool:
    """Return whether L1 holds the operands of one trip, and L0C its sums."""
    return tiling.streamed_bytes <= _L1_BYTES and tiling.resident_bytes <= _L0C_BYTES


def default_cube_tile(
    rows: int, cols: int, depth: int, item_bytes: int, target: Target, *, products: int = 1, copies: int = 0
) -> dict[str, Value]:
    """Return the largest tile that gives every core work, and the deepest trip that is double-buffered, for so many
    products of rows x depth x cols, of whose sums vector cores hold so many copies."""
    held = [(m, n) for m, n in _TILES if vector_memory_holds(m, n * copies, target)]
    fitting = [(m, n) for m, n in held if m in sides(rows) and n in sides(cols)] or [
        (int(max(sides(rows), key=_up_to_128)), int(max(sides(cols), key=_up_to_128)))
    ]
    busy = [(m, n) for m, n in fitting if products * ceil_div(rows, m) * ceil_div(cols, n) >= target.matrix_cores]
    m, n = busy[0] if busy else fitting[-1]
    deep = [int(k) for k in depths(depth, item_bytes) if operands_in_l1(2 * m, 2 * n, int(k), item_bytes)]
    return {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": max(deep)}


def _up_to_128(value: Value) -> int:
    return int(value) if int(value) <= 128 else 0
