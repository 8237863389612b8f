"""Tiles that a cube core's memories hold, and the largest tile that keeps every core busy."""

from __future__ import annotations

import pytest

from tilewise.kernels.matrix.cube_tiles import (
    accumulator_holds,
    cube_tile_holds,
    default_cube_tile,
    depths,
    operands_in_l1,
    sides,
    vector_memory_holds,
)
from tilewise.kernels.spec import Target, Tiling

B4 = Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)


@pytest.mark.parametrize(
    ("held", "within", "beyond"),
    [
        (operands_in_l1, (128, 128, 1024, 2), (128, 129, 1024, 2)),
        (operands_in_l1, (256, 256, 256, 4), (256, 256, 257, 4)),
        (operands_in_l1, (512, 512, 512, 1), (512, 512, 513, 1)),
        (accumulator_holds, (128, 256), (128, 257)),
        (lambda rows, cols: vector_memory_holds(rows, cols, B4), (64, 1536), (64, 1537)),
        (lambda *bytes_: cube_tile_holds(Tiling((), *bytes_)), (512 << 10, 128 << 10), ((512 << 10) + 1, 128 << 10)),
        (lambda *bytes_: cube_tile_holds(Tiling((), *bytes_)), (512 << 10, 128 << 10), (512 << 10, (128 << 10) + 1)),
    ],
)
def test_a_tile_fits_up_to_the_last_byte(held, within, beyond):
    assert held(*within)
    assert not held(*beyond)


def test_trips_are_of_64_to_1024_bytes_of_a_row():
    for item_bytes in (1, 2, 4):
        found = depths(100_000, item_bytes)
        assert (min(found) * item_bytes, max(found) * item_bytes) == (64, 1024)
    assert (min(sides(100_000)), max(sides(100_000))) == (16, 256)


@pytest.mark.parametrize(
    ("size", "more", "tile"),
    [
        ((8192, 8192, 8192, 2), {}, (128, 256, 256)),
        ((512, 1024, 4096, 2), {}, (128, 128, 512)),
        ((640, 1024, 4096, 2), {}, (128, 256, 256)),  # 20 tiles for 20 cube cores
        ((16, 8192, 4096, 2), {}, (16, 64, 512)),
        ((64, 64, 64, 2), {}, (16, 64, 64)),  # too small for all cores: the smallest
        ((64, 64, 64, 2), {"products": 80}, (64, 64, 64)),
        ((128, 256, 8192, 4), {"products": 20}, (128, 256, 128)),
        ((128, 256, 8192, 4), {"products": 19}, (128, 128, 256)),
        ((8192, 8192, 8192, 1), {}, (128, 256, 512)),
        ((8192, 8192, 8192, 2), {"copies": 3}, (128, 256, 256)),  # exactly what a vector core holds
        ((8192, 8192, 8192, 2), {"copies": 4}, (128, 128, 512)),
    ],
)
def test_the_default_is_the_largest_tile_that_gives_every_core_work(size, more, tile):
    assert tuple(default_cube_tile(*size, B4, **more).values()) == tile
