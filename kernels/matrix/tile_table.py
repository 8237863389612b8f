"""The launch that lists the tiles of groups of rows for Ascend's cube cores, and the buffers that it writes."""

from __future__ import annotations

from collections.abc import Mapping

from tilewise.kernels.candidate_values import powers_of_two
from tilewise.kernels.spec import Buffer, Launch, ceil_div

__all__ = ["TABLE", "table_buffers", "tile_table"]

TABLE = "tilewise.kernels.jit.matrix.grouped_gemm:tile_table_kernel"

_COMPARED = 8192
"""Pairs of a tile and a group that a program compares at once: a tile of int32 and its temporaries fit on chip."""

_MOST_STEP = 128


def tile_table(tiles: int, groups: int, rows: int) -> Launch:
    """Return the launch for at most this many tiles of `rows` rows, a power of two; the sizes of groups are in
    `offsets_ptr`."""
    wide = powers_of_two(1, groups)[-1]
    step = max(8, min(_MOST_STEP, _COMPARED // wide))
    sizes = {"GROUPS": groups, "BLOCK_G": wide, "BLOCK_M": rows, "SHIFT": rows.bit_length() - 1}
    return Launch(TABLE, (ceil_div(tiles, step),), {**sizes, "TILES": tiles, "STEP": step})


def table_buffers(tiles: int) -> Mapping[str, Buffer]:
    """Return the group and the first row of each tile, and the number of tiles that there really are."""
    listed = {name: Buffer((tiles,), "int32", role="out") for name in ("groups_ptr", "rows_ptr")}
    return {**listed, "count_ptr": Buffer((1,), "int32", role="out")}
